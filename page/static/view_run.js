// One run: its headline, what may be done with it, and its parts.

import { evaluate, prioritise, resume, stop } from "./actions.js";
import { fill, h, say } from "./dom.js";
import { action, badge } from "./parts.js";
import { OVER, headline } from "./reasons.js";
import { runAddress } from "./api.js";

const PARTS = { "": "Overview", logs: "Logs", checkpoints: "Checkpoints", config: "Config" };
const load = (part) => import(`./run_${part || "overview"}.js`);
for (const part in PARTS) load(part).catch(() => null);

export async function view(context, route) {
	const [name, part = ""] = route.parts;
	const detail = await context.api.get("api/run", { run: name });
	const about = { name, detail, run: detail.run, lanes: null, show };
	const state = h("span");
	const kind = h("p.quiet");
	const why = h("p", { role: "status" });
	const buttons = h("div.row");
	let offered = "";

	function show() {
		const { run } = about;
		fill(state, badge(run.state));
		say(kind, [run.algorithm, run.env, run.seed !== null && `seed ${run.seed}`, run.mode === "serial" && "one process", run.priority && `priority ${run.priority}`, run.run].filter(Boolean).join(" · "));
		const queued = context.queue?.experiments.find(({ id }) => id === run.experiment);
		const { tone, text } = headline(run, { queued, lanes: about.lanes, stop: detail.stop });
		why.className = `why ${tone}`;
		say(why, text);
		offer(OVER.includes(run.state));
	}

	function offer(over) {
		const now = JSON.stringify([over, context.session]);
		if (offered === now) return;
		offered = now;
		const button = (what, text, act, look) => action(context, what, text, () => act(context, about.run), look);
		fill(buttons, over ? button("resume", "Resume …", resume) : [button("stop", "Stop …", stop, ".danger"), button("priority", "Priority …", prioritise)],
			button("evaluate", "Evaluate …", evaluate), h("span.quiet", context.why(over ? "resume" : "stop")));
	}

	const { section } = await load(part);
	const shown = await section(context, about, route);
	show();
	const to = (key) => runAddress(name, key);
	const tabs = Object.entries(PARTS).map(([key, text]) => h("a", { href: to(key), "aria-current": key === part ? "page" : null }, text));
	return {
		title: `${PARTS[part]} of ${name}`,
		element: [h("div", h("div.row", h("h1", about.run.name ?? name), state), kind), why, buttons, h("nav.tabs", { "aria-label": "Parts of the run" }, tabs), shown.element],
		stream: () => ({ run: name, ...shown.stream?.() }),
		shortcuts: { ...Object.fromEntries(Object.keys(PARTS).map((key, at) => [at + 1, () => context.go(to(key))])), ...shown.shortcuts },
		on: {
			...shown.on,
			run({ run }) {
				about.run = run;
				show();
				shown.on?.run?.();
			},
			queue: show,
			session: show,
		},
		close: shown.close,
	};
}
