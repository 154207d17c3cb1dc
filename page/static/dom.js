// Elements from values, and small pieces that several views show. Text is only ever set as text, so it cannot become markup.

import { runAddress } from "./api.js";

// h("p.note", {id: "x", onclick: f}, "text", child, [children], null)
export function h(what, ...parts) {
	const [name, ...classes] = what.split(".");
	const made = document.createElement(name);
	if (classes.length) made.className = classes.join(" ");
	return filled(made, parts);
}

export const svg = (name, ...parts) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), parts);

function filled(made, parts) {
	for (const part of parts) {
		if (part?.constructor === Object) for (const [key, value] of Object.entries(part)) set(made, key, value);
		else append(made, part);
	}
	return made;
}

function append(parent, part) {
	if (Array.isArray(part)) part.forEach((each) => append(parent, each));
	else if (part !== null && part !== undefined && part !== false) parent.append(part);
}

// `on…` is a listener; styles are set separately, as a strict content policy requires.
function set(made, key, value) {
	if (value === null || value === undefined || value === false) return;
	if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
	else if (key === "style") for (const [name, each] of Object.entries(value)) made.style.setProperty(name, each);
	else if (key === "value" || key === "checked") made[key] = value;
	else made.setAttribute(key, value === true ? "" : value);
}

export function fill(parent, ...children) {
	parent.replaceChildren();
	append(parent, children);
	return parent;
}

export function say(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

export function keep(parent, rows, key, make, update) {
	const names = new Set(rows.map((row) => String(key(row))));
	const former = new Map();
	for (const child of [...parent.children]) {
		if (names.has(child.dataset.key)) former.set(child.dataset.key, child);
		else child.remove();
	}
	let before = parent.firstElementChild;
	for (const row of rows) {
		const name = String(key(row));
		const element = former.get(name) ?? make(row);
		element.dataset.key = name;
		update(element, row);
		if (element === before) before = before.nextElementSibling;
		else parent.insertBefore(element, before);
	}
}

export const OVER = ["finished", "stopped", "failed", "unknown"];
const TONES = {
	queued: "wait", starting: "wait", stopping: "wait", running: "good", failed: "bad",
	busy: "good", stuck: "bad", lost: "bad", draining: "wait", done: "good",
};
export const badge = (state) => h(`span.badge.${TONES[state] ?? "still"}`, state);
export const runLink = (run, text = run) => (run ? h("a", { href: runAddress(run), title: run }, text) : text);

export const fact = (term, value, note = null) => h("div", h("dt", term), h("dd", value, note && h("small", note)));

export function action(context, name, text, act, kind = "") {
	const why = context.why(name);
	return context.session.right === "viewer" ? null : h(`button${kind}`, { disabled: Boolean(why), title: why || null, onclick: act }, text);
}

// The herd of `remuda launch` serves one run.
export const ofLaunch = ({ session }) => session.of_launch && h("p.wait",
	"This herd was started by remuda launch and ends with its run: what else runs or waits is stopped then. For one that stays: remuda coordinator.");

// A search field. `has(...texts)` returns true if the texts contain all its words.
export function search(hint, act) {
	const element = h("input.grow", { type: "search", placeholder: hint, "aria-label": `Search: ${hint}`, oninput: act });
	const has = (...texts) => {
		const all = texts.join(" ").toLowerCase();
		return element.value.toLowerCase().split(/\s+/).every((word) => all.includes(word));
	};
	return { element, has };
}

// The key of a run; a run outside of the runs folder has no `run`.
export const runKey = ({ run, experiment, name }) => run ?? experiment ?? name;

// All runs, collected by `take` from the events `runs`, of which the first is complete. `news` is the newest event.
export function allRuns(show) {
	const all = { runs: new Map(), news: null, take(news) {
		all.news = news;
		if (news.all) all.runs.clear();
		for (const run of news.runs) all.runs.set(runKey(run), run);
		for (const gone of news.gone) all.runs.delete(gone);
		show();
	} };
	return all;
}

export const newest = (runs) => runs.sort((a, b) => (b.changed_s ?? 0) - (a.changed_s ?? 0));
