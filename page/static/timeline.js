// A picture of the time of each role: a lane per role, with waits hatched and named, and the shares as words.

import { fill, h, say, svg } from "./dom.js";
import { capital, count, duration, share } from "./format.js";

// Intervals for the number of processes: in a single interval some may not have reported.
const LATEST = 10;

export const isWait = (kind) => kind.startsWith("wait_");

// An answer of /api/timeline as lanes: {role, many, total, words, bins}. A bin is {from_s, to_s, shares}, `shares` is null
// if unknown; `total` has the shares of the whole time.
export const lanesOf = ({ begin_s, end_s, kinds, roles }) => roles.map(({ role, total, words, shares, processes }) => ({
	role, total, words,
	many: Math.round(Math.max(...processes.slice(-LATEST))),
	bins: begin_s.map((from_s, at) => ({
		from_s: Math.min(from_s, end_s[at - 1] ?? from_s),
		to_s: end_s[at],
		shares: Number.isFinite(shares.work[at]) ? Object.fromEntries(kinds.map((kind) => [kind, shares[kind][at]])) : null,
	})),
}));

// The outline of each kind in a picture of this size: Map from kind to the `d` of a path, the first of `kinds` at the
// bottom. `from_s` is the left edge of the picture, `to_s` the right one.
export function outlines(bins, kinds, from_s, to_s, width, height) {
	const found = new Map();
	const tenth = (value) => Math.round(value * 10) / 10;
	const x = (time_s) => tenth(((time_s - from_s) / Math.max(to_s - from_s, 1e-9)) * width);
	for (const bin of bins) {
		let below = 0;
		for (const kind of kinds) {
			const above = Math.min(below + (bin.shares?.[kind] ?? 0), 1);
			const [top, bottom] = [above, below].map((share) => tenth(height * (1 - share)));
			if (bottom > top) found.set(kind, `${found.get(kind) ?? ""}M${x(bin.from_s)} ${top}H${x(bin.to_s)}V${bottom}H${x(bin.from_s)}Z`);
			below = above;
		}
	}
	return found;
}

export const binAt = ({ bins }, time_s) => bins.find(({ from_s, to_s, shares }) => from_s <= time_s && time_s <= to_s && shares);

// "works 80 %, waits for credit 20 %"
export const spoken = (shares, words, share, wanted = () => true) => Object.keys(shares)
	.filter((kind) => shares[kind] >= 0.01 && wanted(kind))
	.sort((a, b) => shares[b] - shares[a])
	.map((kind) => `${words[kind][0]} ${share(shares[kind])}`).join(", ");

// Round marks on an axis of seconds, about `most` of them.
export function marks(from_s, to_s, most = 6) {
	const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
	const wanted = (to_s - from_s) / most;
	const step = steps.find((each) => each >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
	const first = Math.ceil(from_s / step);
	return Array.from({ length: Math.max(Math.floor(to_s / step) - first + 1, 0) }, (_, at) => (first + at) * step);
}

const WIDTH = 1000;
const HEIGHT = 54;
const COLOURS = { work: "c0", wait_batches: "c1", wait_policy: "c3", wait_disk: "bad", wait_workers: "c2" };
const colour = (kind) => `var(--${COLOURS[kind] ?? kind.replace("wait_", "")})`;

export function lanes() {
	const rows = h("div");
	const legend = h("ul.legend", { "aria-label": "Kinds of time" });
	const told = h("p.quiet", { "aria-live": "polite" });
	const element = h("div", rows, told, legend);
	let [found, kinds, at_s, from_s, to_s] = [[], [], null, 0, 0];
	const x = (time_s) => (time_s - from_s) / Math.max(to_s - from_s, 1e-9);

	function show(newer) {
		[found, kinds] = [lanesOf(newer), newer.kinds];
		if (!newer.begin_s.length) return say(told, "The first interval (log.buffer_interval_s) is not over yet.");
		[from_s, to_s] = [newer.begin_s[0], newer.end_s.at(-1)];
		const focused = document.activeElement.dataset.role;
		fill(rows, hatching(), found.map(row), axis());
		if (focused) rows.querySelector(`[data-role="${focused}"]`)?.focus();
		fill(legend, kinds.map((kind) => {
			const words = new Set(found.filter(({ total }) => total[kind] > 0.002).map((lane) => lane.words[kind][0]));
			return words.size > 0 && h("li", h(isWait(kind) ? "span.swatch.hatched" : "span.swatch", { style: { "--of": colour(kind) } }), capital([...words].join(", ")));
		}));
		return point(at_s);
	}

	function row({ role, many, total, words, bins }) {
		const picture = svg("svg", {
			viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "shape-rendering": "crispEdges", tabindex: "0", role: "img", "data-role": role,
			"aria-label": `${role}: ${spoken(total, words, share) || "nothing known"}. The arrow keys read it over time.`,
			onpointermove: ({ clientX }) => {
				const { left, width } = picture.getBoundingClientRect();
				point(from_s + ((clientX - left) / width) * (to_s - from_s));
			},
			onpointerleave: () => point(null),
			onkeydown: (event) => moved(event, bins.filter(({ shares }) => shares)),
		}, [...outlines(bins, kinds, from_s, to_s, WIDTH, HEIGHT)].flatMap(([kind, d]) => [
			svg("path", { d, "data-kind": kind, style: { fill: colour(kind) } }), isWait(kind) && svg("path", { d, fill: "url(#hatching)" }),
		]), svg("line", { class: "cursor", y1: 0, y2: HEIGHT }));
		const waits = spoken(total, words, share, isWait);
		return h("div.lane", h("div", h("strong", capital(role), many > 1 ? ` × ${count(many)}` : ""), h("span", waits || "hardly waits")), picture);
	}

	// Waits are hatched, so that they can be told without colours, too.
	const hatching = () => svg("svg", { width: 0, height: 0, "aria-hidden": "true", style: { position: "absolute" } },
		svg("pattern", { id: "hatching", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
			svg("rect", { width: 2, height: 7, style: { fill: "var(--paper)", opacity: ".35" } })));

	const axis = () => h("div.lane", h("span"), svg("svg", { class: "axis", "aria-hidden": "true" }, marks(from_s, to_s).map((mark) =>
		svg("text", { x: `${100 * x(mark)}%`, y: 14 }, duration(mark)))));

	function moved(event, bins) {
		const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
		if (!by) return;
		event.preventDefault();
		const now = bins.findIndex((bin) => at_s !== null && bin.from_s <= at_s && at_s <= bin.to_s);
		const next = bins[now < 0 ? bins.length - 1 : Math.min(Math.max(now + by, 0), bins.length - 1)];
		if (next) point((next.from_s + next.to_s) / 2);
	}

	function point(time_s) {
		at_s = time_s;
		for (const line of rows.querySelectorAll(".cursor")) {
			line.setAttribute("visibility", at_s === null ? "hidden" : "visible");
			for (const end of ["x1", "x2"]) line.setAttribute(end, WIDTH * x(at_s ?? 0));
		}
		if (at_s === null) return say(told, `The whole run, ${duration(to_s - from_s)}. Point at a lane, or use the arrow keys in it, to read one moment.`);
		const parts = found.map((lane) => [lane, binAt(lane, at_s)]).filter(([, bin]) => bin);
		return say(told, `At ${duration(at_s)}: ${parts.map(([{ role, words }, { shares }]) => `${role} ${spoken(shares, words, share)}`).join("; ") || "nothing known"}.`);
	}

	return { element, show };
}
