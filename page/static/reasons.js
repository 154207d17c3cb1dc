// One sentence about each run: why it waits, if it waits. From what the server says to {tone, text}.

import { count, digits, list, plural, sentence, share } from "./format.js";
import { because, name, ranked } from "./timeline.js";

const NOTABLE = 0.25;
// Waits for disks and workers should not be there at all.
const NEVER = 0.02;
const ENDS = {
	stop_value: ({ stop_value }) => `its return reached the stop value${stop_value ? ` ${digits(stop_value)}` : ""}`,
	max_env_steps: ({ max_env_steps }) => `it has made ${max_env_steps ? count(max_env_steps) : "all its"} environment steps`,
	max_train_iters: ({ max_train_iters }) => `it has made ${max_train_iters ? count(max_train_iters) : "all its"} updates`,
	max_wall_s: () => "its time was over",
	stopped: () => "somebody asked for it",
};

export const OVER = ["finished", "stopped", "failed", "unknown"];
export const TONES = {
	queued: "wait", starting: "wait", stopping: "wait", running: "good", finished: "still", stopped: "still", failed: "bad", unknown: "still",
	busy: "good", idle: "still", stuck: "bad", lost: "bad", draining: "wait", done: "good",
};

// `queued`: its entry in the queue; `lanes`: as lanesOf gives them; `stop`: the bounds of its config. Each may be missing.
export function headline(run, { queued = null, lanes = null, stop = null } = {}) {
	const end = () => (Object.hasOwn(ENDS, run.reason) ? ENDS[run.reason](stop ?? {}) : run.reason ?? "nobody has written why");
	const why = queued?.why ?? run.why;
	const say = (text, tone = TONES[run.state]) => ({ tone, text: sentence(text) });
	switch (run.state) {
		case "queued": return say(queuedText(queued, why));
		case "starting": return say(why ?? "it has its workers, and waits until its learner is ready");
		case "stopping": return say(why ?? "it ends: the last checkpoint is saved and evaluated");
		case "running": return why ? say(why, "wait") : running(lanes, say);
		case "finished": return say(`finished: ${end()}`);
		case "stopped": return say(`stopped: ${end()}`);
		case "failed": return say(`failed: ${end()}`);
		default: return say("nobody has written how it ended: its process was killed, or another coordinator has it");
	}
}

// "waits for 1 learner and 1 collector: low has them; it is number 1 in the queue"
function queuedText(queued, why) {
	const place = queued?.place ? `; it is number ${queued.place} in the queue` : "";
	if (!queued?.waits_for?.length) return `${why ?? "it waits for workers"}${place}`;
	const parts = queued.waits_for.map(({ role, missing, free }) => `${plural(missing, role)}${free ? ` (${free} free)` : ""}`);
	const runs = [...new Set((queued.held_by ?? []).map(({ run }) => run))];
	const shown = runs.length > 3 ? [...runs.slice(0, 2), `${runs.length - 2} other runs`] : runs;
	const one = queued.waits_for.length === 1 && queued.waits_for[0].missing === 1;
	const holders = runs.length ? `${list(shown)} ${runs.length === 1 ? "has" : "have"} ${one ? "it" : "them"}` : "the herd has too few";
	return `waits for ${list(parts)}: ${holders}${place}`;
}

// Of a run that goes on: the wait that costs most.
function running(lanes, say) {
	const recent = (role) => lanes?.get(role)?.recent ?? {};
	const told = (role, kind) => say(`the ${role} ${name(kind, role)} ${share(recent(role)[kind])} of its time: ${because(kind, role)}`, "wait");
	for (const role of ["learner", "collector"]) {
		const stuck = ["wait_disk", "wait_workers"].find((kind) => recent(role)[kind] >= NEVER);
		if (stuck) return told(role, stuck);
	}
	const [most] = ranked(recent("learner"), ["wait_batches", "wait_policy", "wait_other"]);
	if (recent("learner")[most] >= NOTABLE) return told("learner", most);
	const credit = recent("collector").wait_credit;
	if (credit >= NOTABLE) return say(`the learner sets the pace: its collectors wait for credit ${share(credit)} of their time`);
	return say(lanes?.size ? "it runs, and nobody waits for long" : "it runs");
}
