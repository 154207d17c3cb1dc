// The picture of where each role's time goes: a lane per role, with waits hatched and named.

import { fill, h, say, svg } from "./dom.js";
import { capital, count, duration, share } from "./format.js";
import { binAt, isWait, lanesOf, marks, outlines, spoken } from "./timeline.js";

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
