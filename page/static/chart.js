// Curves, thinned by the server, as lines with bands: drawn by uPlot, with a legend of the values under the pointer.

import { fill, h, say } from "./dom.js";
import { digits, plural, short } from "./format.js";

// The lines of one quantity in an answer of /api/curves: a line per group of seeds with a band of one standard deviation,
// and a line per other run with a band of the thinned values: {name, x, mean, low, high}.
export function lines({ runs: all, groups: together }, bands = true) {
	const groups = bands ? together.filter(({ runs }) => runs.length > 1) : [];
	const within = new Set(groups.flatMap(({ runs }) => runs));
	const alone = all.filter(({ run }) => !within.has(run));
	return [
		...groups.map(({ group, runs, ...line }) => ({ ...line, seeds: runs.length, name: `${group} (${runs.length} seeds)` })),
		...alone.map(({ run, x, last, min, max }) => ({ name: run.replace("//", ", "), x, mean: last, low: min, high: max })),
	].filter(({ x }) => x.length);
}

// Distinct marks of the runs of one quantity, as {at, text}, in order. Marks without this x are left out.
export function marks({ runs }, x) {
	const all = runs.flatMap((run) => run.marks ?? []).filter((mark) => Number.isFinite(mark[x])).map((mark) => ({ at: mark[x], text: String(mark.text) }));
	return [...new Map(all.map((mark) => [`${mark.at} ${mark.text}`, mark])).values()].sort((a, b) => a.at - b.at);
}

export const hasBand = ({ low, high }) => Boolean(low?.some((value, at) => Number.isFinite(value) && high[at] > value));

// The exponential mean of the values so far, like TensorBoard for evenly spaced points: divided by the total weight, so
// that it does not begin at 0. Closer points have less weight, since a group has the points of all its seeds. Other values
// than numbers stay unchanged, without weight.
export function smoothed(x, values, weight, seeds = 1) {
	const usual = (x.at(-1) - x[0]) / Math.max(x.length / seeds - 1, 1);
	let [sum, whole, before] = [0, 0, null];
	return values.map((value, at) => {
		if (!Number.isFinite(value)) return value;
		const kept = weight ** (before === null || !usual ? 1 : (x[at] - before) / usual);
		[sum, whole, before] = [kept * sum + (1 - kept) * value, kept * whole + (1 - kept), x[at]];
		return sum / whole;
	});
}

// A line for drawing: smoothed, and without values that a logarithmic axis cannot show. `raw` is the line before
// smoothing; `hidden` counts missing points. A band ends at the least drawn value.
export function drawable({ name, x, mean, low, high, seeds }, { logx = false, logy = false, smooth = 0 }) {
	const there = x.map((at, index) => index).filter((index) => !logx || x[index] > 0);
	const of = (values) => values && there.map((index) => values[index]);
	const positive = (values) => (logy ? values.map((value) => (value > 0 ? value : null)) : values);
	const [own, raw] = [{ name, x: of(x), low: of(low), high: of(high) }, of(mean)];
	const shown = positive(smooth ? smoothed(own.x, raw, smooth, seeds) : raw);
	const floor = logy ? Math.min(...positive(raw).filter(Number.isFinite)) : -Infinity;
	const edge = (values) => values?.map((value) => (Number.isFinite(value) ? Math.max(value, floor) : value));
	return {
		...own, mean: shown, raw: smooth ? positive(raw) : null, low: edge(own.low), high: edge(own.high),
		hidden: x.length - there.length + (logy ? raw.filter((value) => Number.isFinite(value) && value <= 0).length : 0),
	};
}

// Indexes of values between gaps, which no line shows. Undefined is not a gap: only another line has a point there.
export function isolated(values) {
	const own = values.map((value, at) => at).filter((at) => values[at] !== undefined);
	const gap = (at) => at === undefined || values[at] === null;
	return own.filter((at, index) => values[at] !== null && gap(own[index - 1]) && gap(own[index + 1]));
}

// Text for users of screen readers.
export function summary({ mean }) {
	const values = mean.filter(Number.isFinite);
	return values.length ? { last: values.at(-1), most: values.reduce((a, b) => Math.max(a, b)) } : null;
}

const COLOURS = 8;
const NAMED = 24;
const MARKED = 12;
const SPOKEN = 10;
const DOT_PX = 24;
const ROOM_PX = [52, 22];
const AGAIN_MS = 2000;
export const AXES = { env_step: "environment steps", train_iter: "updates", wall_s: "seconds" };
const FONT = "12px system-ui, sans-serif";
const colour = (at) => `--c${at % COLOURS}`;
const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const LOGARITHMIC = 3; // as uPlot calls it
let library = null;

// null without an answer; requested again later.
const loaded = () => (library ??= new Promise((onload, onerror) => {
	document.head.append(h("script", { src: "static/uPlot.iife.min.js", onload, onerror }));
}).catch(() => (library = null)));

// Returns {element, show(lines, x, how), close()}: lines in the form of `lines`. `y`: the quantity. `how`: `logx`,
// `logy`, `smooth`, `marks`, and `wrong`: reason for an empty chart. Charts over the same x share a cursor.
export function chart(y, height = 260) {
	const place = h("div", { role: "img", "aria-label": y, tabindex: "0", onkeydown: (event) => stepped(event) });
	const heard = h("p.unseen", { "aria-live": "polite" });
	const legend = h("ul.legend");
	const nothing = h("p.quiet");
	const hidden = h("small.quiet");
	const element = h("figure.chart", place, nothing, hidden, legend, heard);
	const dark = matchMedia("(prefers-color-scheme: dark)");
	let [shown, drawn, shape, closed] = [null, null, "", false];

	function options({ lines, x, logx, logy }) {
		const values = (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick)));
		const axis = { stroke: value("--quiet"), font: FONT, grid: { stroke: value("--line"), width: 1 }, ticks: { show: false }, values };
		const [series, bands] = [[{}], []];
		const filter = (plot, at, show) => (show ? null : isolated(plot.data[at]));
		lines.forEach((line, at) => {
			const stroke = value(colour(at));
			series.push({ stroke, width: 1.75, points: { show: dotted(line), filter, size: 5, fill: stroke } });
			if (line.raw) series.push({ stroke: `${stroke}55`, width: 1.25, points: { show: false } });
			if (!line.banded) return;
			for (let edge = 0; edge < 2; edge++) series.push({ stroke: "transparent", points: { show: false } });
			bands.push({ series: [series.length - 2, series.length - 1], fill: `${stroke}2e` });
		});
		const scale = (log) => (log ? { distr: LOGARITHMIC, range: (_, least, most) => around(least, most) } : {});
		return {
			width: Math.max(place.clientWidth, 200), height, series, bands, legend: { show: false },
			cursor: { y: false, sync: { key: x, scales: ["x", null] } },
			scales: { x: { time: false, ...scale(logx) }, y: scale(logy) },
			axes: [{ ...axis, ...(logx && { filter: labelled }), label: AXES[x], labelFont: FONT, labelSize: 18, size: 32 }, { ...axis, ...(logy && { filter: labelled }), size: 58 }],
			hooks: { setCursor: [({ cursor }) => read(cursor.idx)], draw: [(plot) => annotate(plot)] },
		};
	}

	// A dot for each point, if the points are far apart; close dots would hide the line.
	const dotted = (line) => line.x.length * DOT_PX <= Math.max(place.clientWidth, 200);

	// Marks as vertical lines with their texts, and the value of a curve that is a single point.
	function annotate(plot) {
		const { ctx, bbox: { left, top, width, height: high } } = plot;
		const ratio = devicePixelRatio;
		ctx.save();
		[ctx.textAlign, ctx.textBaseline, ctx.font] = ["left", "middle", FONT.replace("12", String(12 * ratio))];
		[ctx.fillStyle, ctx.strokeStyle, ctx.lineWidth] = [value("--ink"), value("--quiet"), ratio];
		const places = shown.marks.map(({ at, text }) => ({ text, to: Math.round(plot.valToPos(at, "x", true)) })).filter(({ to }) => to >= left && to <= left + width);
		let end = left;
		for (const [index, { text, to }] of places.entries()) {
			ctx.setLineDash([4 * ratio, 3 * ratio]);
			ctx.beginPath();
			ctx.moveTo(to, top);
			ctx.lineTo(to, top + high);
			ctx.stroke();
			const wide = ctx.measureText(text).width + 8 * ratio;
			const behind = to + wide <= (places[index + 1]?.to ?? left + width);
			if (behind || to - wide >= end) ctx.fillText(text, (behind ? to : to - wide) + 4 * ratio, top + 8 * ratio); // else it stands only below
			end = behind ? to + wide : to;
		}
		for (const { x, mean } of shown.lines.filter((line) => line.x.length === 1)) {
			const text = short(mean[0]);
			const [to, wide] = [plot.valToPos(x[0], "x", true) + 7 * ratio, ctx.measureText(text).width];
			ctx.fillText(text, to + wide > left + width ? to - wide - 14 * ratio : to, plot.valToPos(mean[0], "y", true));
		}
		ctx.restore();
	}

	function read(at = null) {
		if (!shown?.data) return;
		const until = (column) => shown.data[column].slice(0, at + 1).findLast((each) => each !== undefined);
		shown.lines.slice(0, NAMED).forEach((line, index) => {
			const found = at === null ? summary(line)?.last : until(line.column);
			const raw = line.raw && (at === null ? summary({ mean: line.raw })?.last : until(line.column + 1));
			say(legend.children[index].lastChild, ` ${short(found)}${line.raw ? ` (${short(raw)})` : ""}`);
		});
		say(legend.lastChild, at === null ? "" : `at ${digits(shown.data[0][at], 6)} ${AXES[shown.x]}`);
	}

	// The arrow keys move the cursor from point to point.
	function stepped(event) {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
		if (!step || !shown?.data || event.altKey || event.ctrlKey || event.metaKey) return;
		event.preventDefault();
		const last = shown.data[0].length - 1;
		const at = Math.min(Math.max((drawn.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
		drawn.setCursor({ left: drawn.valToPos(shown.data[0][at], "x"), top: 0 }, true, true);
		read(at);
		say(heard, [legend.lastChild, ...[...legend.children].slice(0, Math.min(shown.lines.length, SPOKEN))].map((one) => one.textContent).join(", "));
	}

	async function draw() {
		const there = await loaded();
		if (!shown || closed) return;
		if (!there) return void setTimeout(draw, AGAIN_MS);
		const { lines, x, logx, logy, marks } = shown;
		const data = globalThis.uPlot.join(lines.map((line) => [line.x, line.mean, ...(line.raw ? [line.raw] : []), ...(line.banded ? [line.high, line.low] : [])]));
		shown.data = data;
		const now = JSON.stringify([x, logx, logy, marks, lines.map((line) => [line.name, line.banded, Boolean(line.raw), dotted(line), line.x.length === 1])]);
		if (now === shape) drawn.setData(data);
		else {
			drawn?.destroy();
			shape = now;
			fill(legend, named(lines), lines.length > NAMED && h("li", `and ${lines.length - NAMED} more`),
				marks.slice(0, MARKED).map(({ at, text }) => h("li", `┆ ${short(at)}: ${text}`)), marks.length > MARKED && h("li", `and ${plural(marks.length - MARKED, "mark")} more`), h("li"));
			drawn = new globalThis.uPlot(options(shown), data, place);
		}
		read();
	}

	const again = () => {
		shape = "";
		if (shown) draw();
	};
	const sized = new ResizeObserver(() => place.clientWidth && drawn?.setSize({ width: place.clientWidth, height }));
	sized.observe(place);
	dark.addEventListener("change", again);
	return {
		element,
		async show(lines, x, { logx = false, logy = false, smooth = 0, marks = [], wrong = null } = {}) {
			let column = 1;
			const all = lines.filter((line) => line.x.length).map((line) => drawable(line, { logx, logy, smooth }));
			const present = all.filter((line) => line.mean.some(Number.isFinite)).map((line) => {
				const own = { ...line, banded: hasBand(line), column };
				column += 1 + Boolean(own.raw) + 2 * own.banded;
				return own;
			});
			const left = all.reduce((sum, line) => sum + line.hidden, 0);
			say(hidden, left ? `${plural(left, "point")} at or below 0 ${left === 1 ? "is" : "are"} not drawn: a logarithmic axis has no place for ${left === 1 ? "it" : "them"}.` : "");
			say(nothing, wrong ?? (left ? "Nothing lies above 0." : "No points yet."));
			hidden.hidden = !left;
			nothing.hidden = present.length > 0;
			place.hidden = legend.hidden = !present.length;
			shown = present.length ? { lines: present, x, logx, logy, marks } : null;
			place.setAttribute("aria-label", `${y} over ${AXES[x]}. ${described(present)} ${marks.slice(0, MARKED).map(({ at, text }) => `At ${short(at)}: ${text}.`).join(" ")}`.trim());
			if (shown) await draw();
		},
		close() {
			closed = true;
			sized.disconnect();
			dark.removeEventListener("change", again);
			drawn?.destroy();
		},
	};
}

// The ends of a logarithmic axis, rounded to one digit like its marks.
function around(least, most) {
	if (!(least > 0)) return [1, 10];
	const to = (round, size) => round(size / 10 ** Math.floor(Math.log10(size))) * 10 ** Math.floor(Math.log10(size));
	return [to(Math.floor, least / 1.05), to(Math.ceil, most * 1.05)];
}

// Marks of a logarithmic axis with room for a label, round numbers first; null for other marks.
function labelled(plot, ticks, axis) {
	const [scale, room, kept] = [axis === 0 ? "x" : "y", ROOM_PX[axis], new Map()];
	for (const first of ["1", "25", "37", "4689"]) {
		for (const tick of ticks.filter((one) => first.includes(one.toExponential()[0]))) {
			const to = plot.valToPos(tick, scale);
			if ([...kept.values()].every((other) => Math.abs(other - to) >= room)) kept.set(tick, to);
		}
	}
	return ticks.map((tick) => (kept.has(tick) ? tick : null));
}

const named = (lines) => lines.slice(0, NAMED).map(({ name }, at) => h("li", h("span.swatch", { style: { "--of": `var(${colour(at)})` } }), name, h("strong")));

export const described = (lines) => lines.slice(0, SPOKEN).map((line) => {
	const found = summary(line);
	return `${line.name} ${found ? `last ${short(found.last)}, highest ${short(found.most)}` : "no values"}.`;
}).join(" ");
