// One run: its headline, what may be done with it, and its parts.

import { chips, editNotes, evaluate, prioritise, resume, stop } from "./actions.js";
import { load, runAddress } from "./api.js";
import { choose } from "./dialog.js";
import { action, badge, fill, h, OVER, say } from "./dom.js";

const PARTS = { "": "Overview", logs: "Logs", checkpoints: "Checkpoints", config: "Config", episodes: "Episodes" };
const module = (part) => load(`run_${part || "overview"}`);
for (const part in PARTS) module(part).catch(() => null);

export async function view(context, route) {
	const [name, part = ""] = route.parts;
	const detail = await context.api.get("api/run", { run: name });
	const policies = detail.run.policies.map((each) => each.name);
	const policy = route.query.get("policy") ?? policies[0];
	// `one`: what has curves and checkpoints of its own, a policy if there are several.
	const about = { name, detail, run: detail.run, policies, one: policies.length ? `${name}//${policy}` : name };
	const state = h("span");
	const kind = h("p.quiet");
	const why = h("p", { role: "status" });
	const buttons = h("div.row");
	const notes = h("div.row.notes");
	let offered = "";

	function show() {
		const { run } = about;
		fill(state, badge(run.state));
		say(kind, [run.algorithm, run.env, run.seed !== null && `seed ${run.seed}`, run.mode === "serial" && "one process", run.priority && `priority ${run.priority}`, run.run].filter(Boolean).join(" · "));
		why.className = `why ${run.tone}`;
		say(why, run.says);
		fill(notes, chips(run.tags), run.note && h("p.note", run.note));
		offer(OVER.includes(run.state));
	}

	function offer(over) {
		const noted = Boolean(about.run.note || about.run.tags.length);
		const now = JSON.stringify([over, noted, context.session]);
		if (offered === now) return;
		offered = now;
		const button = (what, text, act, look) => action(context, what, text, () => act(context, about.run), look);
		fill(buttons, over ? button("resume", "Resume …", resume) : [button("stop", "Stop …", stop, ".danger"), button("priority", "Priority …", prioritise)],
			button("evaluate", "Evaluate …", evaluate), button("note", noted ? "Edit note …" : "Add note …", note), h("span.quiet", context.why(over ? "resume" : "stop")));
	}

	async function note() {
		const kept = await editNotes(context, about.run);
		if (!kept) return;
		about.run = { ...about.run, ...kept };
		show();
	}

	const { section } = await module(part);
	const shown = await section(context, about, route);
	show();
	const to = (key, which = policy) => runAddress(name, key, { policy: which });
	const chosen = policies.length > 0 && ["", "checkpoints"].includes(part) && h("p", h("label", "Policy ",
		choose(h("select", { onchange: ({ target }) => context.go(to(part, target.value)) }), policies.map((one) => [one, one]), policy)));
	const tabs = Object.entries(PARTS).map(([key, text]) => h("a", { href: to(key), "aria-current": key === part ? "page" : null }, text));
	return {
		title: `${PARTS[part]} of ${name}`,
		element: [h("div", h("div.row", h("h1", about.run.name ?? name), state), kind), why, notes, buttons, h("nav.tabs", { "aria-label": "Parts of the run" }, tabs), chosen, shown.element],
		stream: () => ({ run: about.one, ...shown.stream?.() }),
		shortcuts: { ...Object.fromEntries(Object.keys(PARTS).map((key, at) => [at + 1, () => context.go(to(key))])), ...shown.shortcuts },
		on: {
			...shown.on,
			run({ run }) {
				about.run = run;
				show();
				shown.on?.run?.();
			},
			session: show,
		},
		close: shown.close,
	};
}
