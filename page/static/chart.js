// Lines with bands, drawn by uPlot, with a legend that says the values under the pointer.

import { hasBand, summary } from "./curves.js";
import { fill, h, say } from "./dom.js";
import { digits, short } from "./format.js";

const COLOURS = 8;
const NAMED = 24;
const FEW = 40;
const AGAIN_MS = 2000;
export const AXES = { env_step: "environment steps", train_iter: "updates", wall_s: "seconds" };
const FONT = "12px system-ui, sans-serif";
const colour = (at) => `--c${at % COLOURS}`;
const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let library = null;

// null if nobody has answered: it is asked for again.
const loaded = () => (library ??= new Promise((onload, onerror) => {
	document.head.append(h("script", { src: "static/uPlot.iife.min.js", onload, onerror }));
}).catch(() => (library = null)));

// Returns {element, show(lines, x), close()}: lines as curves.js has them. `y` says what is drawn.
export function chart(y, height = 260) {
	const place = h("div");
	const legend = h("ul.legend");
	const nothing = h("p.quiet", "No points yet.");
	const element = h("figure.chart", { role: "img", "aria-label": y }, place, nothing, legend);
	const dark = matchMedia("(prefers-color-scheme: dark)");
	let [shown, drawn, shape, closed] = [null, null, "", false];

	function options({ lines, x }) {
		const axis = { stroke: value("--quiet"), font: FONT, grid: { stroke: value("--line"), width: 1 }, ticks: { show: false }, values: (_, marks) => marks.map(short) };
		const [series, bands] = [[{}], []];
		lines.forEach((line, at) => {
			const stroke = value(colour(at));
			series.push({ stroke, width: 1.75, points: { show: line.x.length < FEW, size: 5, fill: stroke } });
			if (!line.banded) return;
			for (let edge = 0; edge < 2; edge++) series.push({ stroke: "transparent", points: { show: false } });
			bands.push({ series: [series.length - 2, series.length - 1], fill: `${stroke}2e` });
		});
		return {
			width: Math.max(place.clientWidth, 200), height, series, bands, legend: { show: false }, cursor: { y: false }, scales: { x: { time: false } },
			axes: [{ ...axis, label: AXES[x], labelFont: FONT, labelSize: 18, size: 32 }, { ...axis, size: 58 }], hooks: { setCursor: [({ cursor }) => read(cursor.idx)] },
		};
	}

	function read(at = null) {
		if (!shown?.data) return;
		shown.lines.slice(0, NAMED).forEach((line, index) => {
			const found = at === null ? summary(line)?.last : shown.data[line.column].slice(0, at + 1).findLast((each) => each !== undefined);
			say(legend.children[index].lastChild, ` ${short(found)}`);
		});
		say(legend.lastChild, at === null ? "" : `at ${digits(shown.data[0][at], 6)} ${AXES[shown.x]}`);
	}

	async function draw() {
		const there = await loaded();
		if (!shown || closed) return;
		if (!there) return void setTimeout(draw, AGAIN_MS);
		const { lines, x } = shown;
		const data = globalThis.uPlot.join(lines.map((line) => (line.banded ? [line.x, line.mean, line.high, line.low] : [line.x, line.mean])));
		shown.data = data;
		const now = JSON.stringify([x, lines.map((line) => [line.name, line.banded, line.x.length < FEW])]);
		if (now === shape) drawn.setData(data);
		else {
			drawn?.destroy();
			shape = now;
			const more = lines.length > NAMED && h("li", `and ${lines.length - NAMED} more`);
			fill(legend, lines.slice(0, NAMED).map(({ name }, at) => h("li", h("span.swatch", { style: { "--of": `var(${colour(at)})` } }), name, h("strong"))), more, h("li"));
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
		async show(lines, x) {
			let column = 1;
			const present = lines.filter((line) => line.x.length).map((line) => {
				const own = { ...line, banded: hasBand(line), column };
				column += own.banded ? 3 : 1;
				return own;
			});
			nothing.hidden = present.length > 0;
			place.hidden = legend.hidden = !present.length;
			shown = present.length ? { lines: present, x } : null;
			element.setAttribute("aria-label", `${y} over ${AXES[x]}. ${described(present)}`);
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

export const described = (lines) => lines.slice(0, 10).map((line) => {
	const found = summary(line);
	return `${line.name} ${found ? `last ${short(found.last)}, highest ${short(found.most)}` : "no values"}.`;
}).join(" ");
