// The queue: what has workers, what waits, and why, in one sentence each.

import { h, say } from "./dom.js";
import { count, duration, list, number, rate } from "./format.js";
import { allRuns, badge, newest, runKey, runLink } from "./parts.js";
import { OVER, headline } from "./reasons.js";
import { runAddress } from "./api.js";
import { column, table } from "./table.js";
import { lanesOf } from "./timeline.js";

const LATEST = 8;
const LOOK_MS = 10000;

export async function view(context) {
	const { api } = context;
	const lanes = new Map();
	let queue = context.queue ?? { experiments: [], free: {} };
	const head = h("p.quiet");
	const name = column("run", "Run", (run, one) => runLink(run, one.name), "name");
	const state = column("state", "State", badge, "wide");
	const steps = column("env_step", "Steps", count, "number wide");
	const best = column("best_return", "Best return", number, "number wide");
	const why = (_, run) => {
		const { tone, text } = headline(run, { queued: run.queued, lanes: lanes.get(run.run) });
		return h(`span.${tone}`, text);
	};
	const options = { key: (one) => one.id ?? runKey(one), link: ({ run }) => run && runAddress(run) };
	const waits = table("Queue", [
		column("place", "Place", count, "number wide"), name, state, column("", "Why", why, "long plain"), column("priority", "Priority", count, "number"),
		steps, column("env_steps_per_s", "Steps/s", rate, "number wide"), best, column("wall_s", "Time", duration, "number wide"),
	], { ...options, empty: "Nothing runs and nothing waits." });
	const ended = table("Ended last", [column("run", "Run", (run, one) => runLink(run, run ?? one.name), "name"), state, column("", "Why it ended", why, "long plain"), best, steps], { ...options, empty: "No run has ended yet." });
	const { runs, take } = allRuns(show);

	function show() {
		const free = Object.entries(queue.free).filter(([, many]) => many).map(([role, many]) => `${many} ${role}${many > 1 ? "s" : ""}`);
		const waiting = queue.experiments.filter((one) => one.state === "queued").length;
		const going = queue.experiments.length - waiting;
		say(head, context.session.live
			? `${going} ${going === 1 ? "run has" : "runs have"} workers, ${waiting} ${waiting === 1 ? "waits" : "wait"}. Free: ${list(free) || "no worker"}.`
			: "There is no coordinator here, so nothing runs and nothing waits.");
		waits.show(queue.experiments.map((queued) => ({ ...queued, ...runs.get(queued.run ?? queued.id), queued })));
		ended.show(newest([...runs.values()].filter((run) => OVER.includes(run.state))).slice(0, LATEST));
	}

	async function look() {
		const going = queue.experiments.filter((one) => one.state === "running" && !one.why).slice(0, 20);
		await Promise.all(going.map(async ({ run }) => {
			const answer = await api.get("api/timeline", { run, buckets: 20 }).catch(() => null);
			if (answer) lanes.set(run, lanesOf(answer));
		}));
		show();
	}

	const took = (newer) => {
		queue = newer;
		show();
	};
	if (context.session.live) await api.get("api/queue").then(took, () => null);
	show();
	look();
	const timer = setInterval(look, LOOK_MS);
	return {
		title: "Queue",
		element: [h("h1", "Queue"), head, h("section.card.flush", waits.element), h("section.card.flush", h("h2", "Ended last"), ended.element)],
		stream: () => ({ runs: 1 }),
		on: { queue: took, runs: take, session: show },
		close: () => clearInterval(timer),
	};
}
