// Questions in a dialog, fields, and shortcuts: single keys, and `g` before another key. Typing in a field is typing.

import { fill, h } from "./dom.js";

export const SHORTCUTS = [
	["g q", "queue: what waits, and why"], ["g r", "all runs"], ["g h", "herd: hosts and workers"], ["g c", "compare runs"],
	["n", "submit an experiment"], ["1 … 5", "parts of a run"], ["j k", "next and former row"],
	["Enter", "open the row"], ["← →", "in a chart, timeline or lineage: from point to point; in an episode: a step"], ["/", "search"], ["f", "follow a log, or stop following"], ["?", "this list"], ["Esc", "close, or leave a field"],
];

// Calls `act` with "g q", "j" and so on; `act` returns true if it handled the keys.
export function listen(target, act, now = () => performance.now(), pause_ms = 1500) {
	let [first, since] = ["", 0];
	target.addEventListener("keydown", (event) => {
		const { key } = event;
		if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || (key !== "Escape" && takesText(event.target))) return;
		const prefix = first && now() - since < pause_ms ? `${first} ` : "";
		first = "";
		if (key === "g" && !prefix) [first, since] = ["g", now()];
		else if (act(prefix + key)) event.preventDefault();
	});
}

export const takesText = (element) => element.matches?.("textarea, select, input:not([type=checkbox])") ?? false;

// An error of `act()` is shown in the dialog, which stays open. Resolves to true after success.
export const ask = (title, { text = "", fields, yes, kind = ".first", act }) => new Promise((resolve) => {
	const wrong = h("p.bad", { role: "alert" });
	const sure = h(`button${kind}`, yes);
	let done = false;
	const form = h("form", fields, wrong, h("div.row", sure, h("button", { type: "button", onclick: () => shown.close() }, "Cancel")));
	form.addEventListener("submit", async (event) => {
		event.preventDefault();
		sure.disabled = true;
		try {
			await act();
			done = true;
			shown.close();
		} catch (error) {
			wrong.textContent = error.message;
		}
		sure.disabled = false;
	});
	const shown = dialog(title, h("p", text), form);
	shown.addEventListener("close", () => resolve(done));
});

function dialog(title, ...parts) {
	const before = document.activeElement;
	const made = h("dialog", { "aria-label": title }, h("h2", title), parts);
	made.addEventListener("close", () => {
		made.remove();
		before.focus();
	});
	document.body.append(made);
	made.showModal();
	return made;
}

export function shortcuts() {
	const made = dialog("Shortcuts",
		h("dl.keys", SHORTCUTS.map(([keys, what]) => [h("dt", keys.split(" ").map((key) => [h("kbd", key), " "])), h("dd", what)])),
		h("button", { onclick: () => made.close() }, "Close"));
}

export const field = (text, input, hint = null) => h("label.field", text, input, hint ? h("span.quiet", hint) : null);

export function choose(select, choices, chosen) {
	fill(select, choices.map(([value, text]) => h("option", { value }, text)));
	select.value = chosen;
	return select;
}

// Settings as `--set` takes them, one per line.
export const settingsIn = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
