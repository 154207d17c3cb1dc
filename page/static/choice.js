// Which charts a reader looks at, and how: in the address, so that a link shares it, and kept by this browser.

import { AXES } from "./chart.js";
import { parsed, query } from "./api.js";

const KEPT = "remuda.charts";
const NAMES = ["chart", "log", "x", "logx", "smooth", "bands"];
const MOST_SMOOTH = 0.99;
export const MOST_CHARTS = 12;
export const RETURN = "evaluation/return_mean";

// The choice in `asked`, of type URLSearchParams; what is missing or makes no sense is as for a new reader.
export function choiceIn(asked) {
	const is = (y) => /^(evaluation|interval|progress)\/./.test(y);
	const [charts, smooth] = [[...new Set(asked.getAll("chart").filter(is))].slice(0, MOST_CHARTS), Number(asked.get("smooth"))];
	return {
		charts: charts.length ? charts : [RETURN],
		log: asked.getAll("log").filter(is),
		x: Object.hasOwn(AXES, asked.get("x") ?? "") ? asked.get("x") : "env_step",
		logx: asked.get("logx") === "1",
		smooth: smooth >= 0 && smooth <= MOST_SMOOTH ? smooth : 0,
		bands: asked.get("bands") !== "0",
	};
}

// The same as parameters of an address.
export const told = ({ charts, log, x, logx, smooth, bands }) => ({
	chart: charts, log: log.filter((y) => charts.includes(y)), x, logx: logx ? "1" : null, smooth: smooth || null, bands: bands ? null : "0",
});

// An address with this choice instead of its own.
export function withChoice(hash, choice) {
	const asked = parsed(hash).query;
	for (const name of NAMES) asked.delete(name);
	const rest = Object.fromEntries([...asked.keys()].map((name) => [name, asked.getAll(name)]));
	return hash.split("?", 1)[0] + query({ ...rest, ...told(choice) });
}

// The choice of the address, or else the one that was kept.
export function begun() {
	const [asked, kept] = [parsed(location.hash).query, localStorage.getItem(KEPT)];
	if (NAMES.some((name) => asked.has(name))) return choiceIn(asked);
	const choice = choiceIn(new URLSearchParams(kept ?? ""));
	if (kept) show(choice);
	return choice;
}

export function keep(choice) {
	localStorage.setItem(KEPT, query(told(choice)));
	show(choice);
}

const show = (choice) => history.replaceState(null, "", location.pathname + withChoice(location.hash, choice));
