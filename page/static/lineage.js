// The lineage of a population: a row per member over environment steps, a bar per interval in the colour of its return,
// and an arrow from each copied checkpoint to the run that went on from it.

import { runAddress } from "./api.js";
import { fill, h, runLink, svg } from "./dom.js";
import { brief, count, number, plural, short } from "./format.js";

// The bars of an answer of /api/lineage: its stretches, each with its run as `kin`.
const barsOf = ({ runs }) => runs.flatMap((kin) => kin.stretches.map((one) => ({ ...one, kin, return_mean: one.checkpoint?.reward ?? null })));

// The bars from new weights to this one: those of its run, and those of each ancestor up to the copied checkpoint.
export function ancestry(bars, last) {
	const named = new Map(bars.map(({ kin }) => [kin.name, kin]));
	const found = new Set([last]);
	for (let [kin, until] = [last.kin, last.begin]; kin; [until, kin] = [kin.origin?.env_step, named.get(kin.parent)]) {
		for (const bar of bars) if (bar.kin === kin && bar.begin < until && bar.end <= until) found.add(bar);
	}
	return found;
}

// The newest bar of the member with the highest return.
function bestOf(bars) {
	const newest = new Map(bars.map((bar) => [bar.kin.member, bar]));
	const rank = ({ return_mean, kin }) => return_mean ?? kin.origin?.reward ?? -Infinity;
	return [...newest.values()].reduce((a, b) => (rank(b) > rank(a) ? b : a));
}

const [LABEL, RIGHT, AXIS, GAP, TEXT] = [44, 16, 22, 18, 44]; // pixels
const MARKS = 6;
const called = ({ name }) => /m\d+_g\d+$/.exec(name)?.[0] ?? name;
const told = (settings) => Object.entries(settings).map(([key, values]) => `${key} ${[values].flat().map(brief).join(" → ")}`).join(", ");

export function lineage(go) {
	const head = h("p.quiet");
	const picture = svg("svg", { class: "lineage", tabindex: "0", role: "img", onkeydown: moved, onclick: (event) => choose(under(event)),
		onpointermove: (event) => point(under(event) ?? chosen), onpointerleave: () => point(chosen) });
	const place = h("div", picture);
	const about = h("div.told", { "aria-live": "polite" });
	const element = h("section.card", { hidden: true }, h("h2", "Lineage over environment steps"), head, place, about);
	let [answer, bars, chosen, asked, shown, scale, drawn, marked] = [null, [], null, null, null, null, new Map(), new Set()];

	const middle = (member) => (member + 0.5) * scale.row;

	function draw() {
		if (!bars.length || !place.clientWidth) return;
		const { members, until, until_env_steps: untils } = answer;
		const row = members <= 16 ? 34 : members <= 50 ? 20 : 12;
		const wide = Math.max(place.clientWidth, 320) - LABEL - RIGHT;
		scale = { row, wide, x: (step) => LABEL + (wide * step) / until, gap: Math.min(GAP, (0.35 * wide * bars[0].end) / until || GAP) };
		for (const [name, size] of [["width", wide + LABEL + RIGHT], ["height", members * row + AXIS]]) picture.setAttribute(name, size);
		drawn = new Map(bars.map((bar) => [bar, parts(bar)]));
		picture.classList.toggle("dense", row < 20);
		const every = Math.ceil(14 / row);
		const marks = untils.filter((_, at) => (at + 1) % Math.ceil(untils.length / MARKS) === 0);
		fill(picture,
			[0, ...marks].map((mark) => [svg("path", { class: "grid", d: `M${scale.x(mark)} 0v${members * row}` }),
				svg("text", { x: scale.x(mark), y: members * row + 15 }, short(mark))]),
			Array.from({ length: members }, (_, member) => member % every === 0 && svg("text", { x: LABEL - 8, y: middle(member) + 4, class: "name" }, `m${String(member).padStart(2, "0")}`)),
			[...drawn.values()]);
		point(chosen);
	}

	// A bar, and the link to it: a line from the run itself, or an arrow from its parent.
	function parts(bar) {
		const { begin, end, kin, return_mean, state } = bar;
		const { x, gap, row } = scale;
		const [from, to, y] = [x(begin) + (begin ? gap : 0), x(end), middle(kin.member)];
		const [wide, tall] = [Math.max(to - from, 3), 0.66 * row];
		const [least, most] = answer.range;
		const part = return_mean === null ? 0 : (return_mean - least) / (most - least || 1);
		const paint = `color-mix(in oklab, var(--accent) ${Math.round(8 + 92 * part)}%, var(--sunk))`;
		const rect = svg("rect", { x: from, y: y - tall / 2, width: wide, height: tall, rx: 2, class: return_mean === null ? state.replace(" ", "-") : null, style: return_mean === null ? {} : { fill: paint } });
		const text = row > 30 && wide > TEXT && return_mean !== null && svg("text", { x: from + wide / 2, y: y + 4, style: { fill: `light-dark(var(--${part > 0.8 ? "on-accent" : "ink"}), var(--${part > 0.55 ? "on-accent" : "ink"}))` } }, short(return_mean));
		const parent = kin.stretches[0].begin === begin && answer.runs.find(({ name }) => name === kin.parent);
		const y0 = parent ? middle(parent.member) : y;
		const tip = Math.min(5, gap / 2);
		return [rect, text, begin && svg("path", { d: `M${x(begin)} ${y0}L${from} ${y}`, class: parent ? null : "same" }),
			parent && svg("path", { d: `M${from + 1} ${y}l${-tip} ${-0.7 * tip}v${1.4 * tip}z`, class: "tip" })].filter(Boolean);
	}

	const under = ({ clientX, clientY }) => {
		const { left, top } = picture.getBoundingClientRect();
		return scale && at(Math.floor((clientY - top) / scale.row), ((clientX - left - LABEL) / scale.wide) * answer.until);
	};
	const at = (member, step) => bars.find(({ kin, begin, end }) => kin.member === member && begin <= step && step <= Math.max(end, begin + 1));

	function choose(bar) {
		if (!bar) return;
		[chosen, asked] = [bar, bar];
		point(bar);
	}

	function moved(event) {
		if (event.altKey || event.ctrlKey || event.metaKey || !chosen) return;
		const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
		if (event.key === "Enter") go(runAddress(chosen.kin.run));
		else if (dx) {
			const row = bars.filter(({ kin }) => kin.member === chosen.kin.member);
			choose(row[row.indexOf(chosen) + dx]);
		} else if (dy) choose(at(chosen.kin.member + dy, (chosen.begin + chosen.end) / 2));
		else return;
		event.preventDefault();
	}

	function point(bar) {
		if (!bar || !scale) return;
		const line = ancestry(bars, bar);
		for (const one of new Set([...marked, ...line])) {
			for (const part of drawn.get(one) ?? []) part.classList.toggle("line", line.has(one));
		}
		marked = line;
		if (shown === bar) return;
		shown = bar;
		const { kin, begin, end, checkpoint, state } = bar;
		const names = [...new Set([...line].map((one) => called(one.kin)))].reverse();
		const { origin } = kin;
		fill(about,
			h("p", h("strong", runLink(kin.run, called(kin))), `, steps ${count(begin)} to ${count(end)}: `,
				checkpoint ? [`return ${number(checkpoint.reward)}, `, h("code", checkpoint.file)] : state, kin.replaced && ", replaced later", "."),
			h("p.quiet", origin
				? [`It went on from ${called({ name: kin.parent })} at step ${count(origin.env_step)} (return ${number(origin.reward)}, `, h("code", { title: `SHA-256 ${origin.sha256}` }, origin.file), `) with ${told(kin.changed) || "the same settings"}.`]
				: `It began with new weights and ${told(kin.settings)}.`, names.length > 1 && ` Its line: ${names.join(" → ")}.`));
	}

	const sized = new ResizeObserver(draw);
	sized.observe(place);
	return {
		element,
		show(newer) {
			const found = barsOf(newer);
			const known = found.map(({ return_mean }) => return_mean).filter(Number.isFinite);
			bars = found.sort((a, b) => a.begin - b.begin);
			answer = { ...newer, range: [Math.min(...known), Math.max(...known)], until: Math.max(newer.until_env_steps.at(-1), ...bars.map(({ end }) => end)) };
			element.hidden = !bars.length && !newer.problem;
			fill(head, newer.problem ?? [`${plural(newer.members, "member")}, ${count(newer.runs.filter(({ parent }) => parent).length)} replaced. Colour is the return at the end of an interval: ${short(answer.range[0])} `,
				h("span.swatch.ramp"), `${short(answer.range[1])}. An arrow is a copied checkpoint, with changed settings. Point at a bar, or use the arrow keys; Enter opens the run.`]);
			if (!bars.length) return;
			const best = bestOf(bars);
			chosen = bars.find(({ kin, begin }) => kin.name === asked?.kin.name && begin === asked.begin) ?? best;
			picture.setAttribute("aria-label", `Lineage of ${plural(newer.members, "member")}. The best is ${called(best.kin)} with ${number(best.return_mean)}. The arrow keys read it.`);
			draw();
		},
		close: () => sized.disconnect(),
	};
}
