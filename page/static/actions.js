// Actions of an operator on a run, and its note and tags: each opens a dialog. Notes are shown as text.

import { runAddress } from "./api.js";
import { ask, choose, field, settingsIn } from "./dialog.js";
import { h } from "./dom.js";

const integer = (value, more) => h("input", { type: "number", step: "1", required: true, value: String(value), ...more });

export async function stop({ api, said }, run) {
	const now = h("input", { type: "checkbox" });
	const done = await ask(`Stop ${run.run}?`, {
		text: "It ends in order: its last checkpoint is saved and evaluated. You can resume it later.",
		fields: h("label", now, " do not evaluate the last checkpoint"),
		yes: "Stop it",
		kind: ".danger",
		act: () => api.post("api/stop", { experiment: run.experiment, now: now.checked }),
	});
	if (done) said("It is being stopped.");
}

export async function prioritise({ api, said }, run) {
	const priority = integer(run.priority ?? 0);
	const done = await ask(`Priority of ${run.run}`, {
		text: "Higher goes first; among equals the one that was submitted first.",
		fields: field("Priority", priority),
		yes: "Set it",
		act: () => api.post("api/priority", { experiment: run.experiment, priority: Number(priority.value) }),
	});
	if (done) said(`Its priority is ${priority.value}.`);
}

export async function resume({ api, said, go }, { run }) {
	const priority = integer(0);
	const set = h("textarea", { rows: "3", spellcheck: "false", placeholder: "stop.max_env_steps=2000000" });
	const done = await ask(`Resume ${run}?`, {
		text: "It goes on from its last checkpoint. If it ended at a bound, set one that is further away.",
		fields: [field("Other settings, one per line", set), field("Priority", priority)],
		yes: "Resume",
		act: () => api.post("api/resume", { run, priority: Number(priority.value), set: settingsIn(set.value) }),
	});
	if (!done) return;
	said("It is in the queue again.");
	go(runAddress(run));
}

// `chosen`: train_iter of the preselected checkpoint.
export async function evaluate({ api, said, go }, { run }, chosen = "best") {
	const known = [["best", "the best"], ["last", "the last"], ...(chosen === "best" ? [] : [[String(chosen), `update ${chosen}`]])];
	const which = choose(h("select"), known, String(chosen));
	const episodes = integer(20, { min: "1", max: "1000" });
	const deterministic = h("input", { type: "checkbox", checked: true });
	const done = await ask(`Evaluate ${run}`, {
		text: "A process on the coordinator's host plays a checkpoint, beside what runs.",
		fields: [field("Checkpoint", which), field("Episodes", episodes), h("label", deterministic, " best actions, without exploration")],
		yes: "Evaluate",
		act: () => api.post("api/evaluate", {
			run, train_iter: Number(which.value) >= 0 ? Number(which.value) : which.value, episodes: Number(episodes.value), deterministic: deterministic.checked,
		}),
	});
	if (!done) return;
	said("It is being evaluated; the result comes under Checkpoints.");
	go(runAddress(run, "checkpoints"));
}

const LONGEST = 2000;

// The tags of a run; with `act(tag)` as buttons.
export const chips = (tags, act = null) => tags.map((tag) => (act ? h("button.chip", { title: `Show the runs with ${tag}`, onclick: () => act(tag) }, tag) : h("span.chip", tag)));

// Resolves to the stored {note, tags}, or to null.
export async function editNotes({ api, said }, { run, note, tags }) {
	const text = h("textarea", { rows: "6", maxlength: String(LONGEST), value: note });
	const words = h("input", { autocomplete: "off", value: tags.join(", "), placeholder: "baseline, lr sweep" });
	let kept = null;
	await ask(`Note on ${run}`, {
		text: "It is kept in the run folder; everybody who may see this page reads it.",
		fields: [field("Note", text), field("Tags, with commas between them", words)],
		yes: "Save",
		act: async () => (kept = await api.post("api/note", { run, note: text.value, tags: words.value.split(",") })),
	});
	if (kept) said("The note is saved.");
	return kept;
}
