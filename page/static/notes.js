// What people write about a run: a text and tags, shown as text, and the dialog in which operators change them.

import { ask, field } from "./dialog.js";
import { h } from "./dom.js";

const LONGEST = 2000;

// The tags of a run; with `act(tag)` each is a button.
export const chips = (tags, act = null) => tags.map((tag) => (act ? h("button.chip", { title: `Show the runs with ${tag}`, onclick: () => act(tag) }, tag) : h("span.chip", tag)));

// Resolves to {note, tags} as they are now kept, or to null.
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
