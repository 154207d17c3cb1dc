// Shortcuts: single keys, and `g` before another one. Typing in a field is typing.

export const SHORTCUTS = [
	["g q", "queue: what waits, and why"], ["g r", "all runs"], ["g h", "herd: hosts and workers"], ["g c", "compare runs"],
	["n", "submit an experiment"], ["1 … 4", "parts of a run: overview, logs, checkpoints, config"], ["j k", "next and former row"],
	["Enter", "open the row"], ["← →", "in a chart or a timeline: from point to point"], ["/", "search"], ["f", "follow a log, or stop following"], ["?", "this list"], ["Esc", "close, or leave a field"],
];

// Calls `act` with "g q", "j" and so on; it returns whether it did something.
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
