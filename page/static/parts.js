// Small pieces that several views show.

import { h } from "./dom.js";
import { runAddress } from "./api.js";

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

// The herd of `remuda launch` is there for one run.
export const ofLaunch = ({ session }) => session.of_launch && h("p.wait",
	"This herd was started by remuda launch and ends with its run: what else runs or waits is stopped then. For one that stays: remuda coordinator.");

// A field to search by. `has(...texts)` says whether all words in it are in these texts.
export function search(hint, act) {
	const element = h("input.grow", { type: "search", placeholder: hint, "aria-label": `Search: ${hint}`, oninput: act });
	const has = (...texts) => {
		const all = texts.join(" ").toLowerCase();
		return element.value.toLowerCase().split(/\s+/).every((word) => all.includes(word));
	};
	return { element, has };
}

// What tells a run from others; one outside of the runs folder has no `run`.
export const runKey = ({ run, experiment, name }) => run ?? experiment ?? name;

// All runs from the events `runs`, the first of which has all: `take` is for them. `news` is the newest of them.
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
