// The queue: what has workers, what waits, and why, in one sentence each.

import { runAddress } from "./api.js";
import { allRuns, badge, h, newest, ofLaunch, OVER, runKey, runLink, say } from "./dom.js";
import { count, duration, list, number, plural, rate } from "./format.js";
import { column, table } from "./table.js";

const LATEST = 8;

export async function view(context) {
	const { api, session, queue: known } = context;
	let queue = known ?? { experiments: [], free: {} };
	const head = h("p.quiet");
	const name = column("run", "Run", (run, one) => runLink(run, one.name), "name");
	const state = column("state", "State", badge, "bare");
	const steps = column("env_step", "Steps", count, "number wide");
	const best = column("best_return", "Best return", number, "number wide");
	const why = (head) => column("says", head, (says, { tone }) => h(`span.${tone}`, says), "long plain");
	const options = { key: (one) => one.id ?? runKey(one), link: ({ run }) => run && runAddress(run) };
	const waits = table("Queue", [
		column("place", "Place", count, "number wide"), name, state, why("Why"), column("priority", "Priority", count, "number wide"),
		steps, column("env_steps_per_s", "Steps/s", rate, "number wide"), best, column("wall_s", "Time", duration, "number wide"),
	], { ...options, empty: "Nothing runs and nothing waits." });
	const ended = table("Ended last", [column("run", "Run", (run, one) => runLink(run, run ?? one.name), "name"), state, why("Why it ended"), best, steps], { ...options, empty: "No run has ended yet.", headed: true });
	const { runs, take } = allRuns(show);

	function show() {
		const free = Object.entries(queue.free).filter(([, many]) => many).map(([role, many]) => plural(many, role));
		const waiting = queue.experiments.filter((one) => one.state === "queued").length;
		const going = plural(queue.experiments.length - waiting, "run");
		say(head, session.live
			? `${going} with workers, ${waiting} waiting. Free: ${list(free) || "no worker"}.`
			: "There is no coordinator here, so nothing runs and nothing waits.");
		waits.show(queue.experiments.map((queued) => ({ ...queued, ...runs.get(queued.run ?? queued.id) })));
		ended.show(newest([...runs.values()].filter((run) => OVER.includes(run.state))).slice(0, LATEST));
	}

	const took = (newer) => {
		queue = newer;
		show();
	};
	if (session.live) await api.get("api/queue").then(took, () => null);
	show();
	return {
		title: "Queue",
		element: [h("h1", "Queue"), head, ofLaunch(context), waits.element, ended.element],
		stream: () => ({ runs: 1 }),
		on: { queue: took, runs: take },
	};
}
