// The charts that a reader has chosen for some runs: one request for all, one cursor, one smoothing. The choice is in the
// address, so that a link shares it, and is kept by this browser.

import { parsed, query } from "./api.js";
import { AXES, chart, lines, marks } from "./chart.js";
import { choose } from "./dialog.js";
import { fill, h, say, search } from "./dom.js";
import { plural } from "./format.js";

const KEPT = "remuda.charts";
const NAMES = ["chart", "log", "x", "logx", "smooth", "bands"];
const MOST_SMOOTH = 0.99;
export const MOST_CHARTS = 12;
export const RETURN = "evaluation/return_mean";

// The choice in `asked`, of type URLSearchParams, with defaults for missing or invalid parts.
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

// The choice as parameters of an address.
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

// The choice of the address, or the stored choice.
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

const AGAIN_MS = 1000;
const MOST = 200;
const MANY = 40;
const MOST_NAMES = 60;
const named = (y) => (y === RETURN ? "return of evaluations" : y);

// `runs(bands)` names the runs.
export function charts(api, runs, { bandText = " seeds as bands", more = null } = {}) {
	const choice = begun();
	const abort = new AbortController();
	const cards = new Map();
	const grid = h("div.charts");
	const told = h("span.quiet.grow", { role: "status" });
	const x = choose(h("select", { onchange: () => changed({ x: x.value }) }), Object.entries(AXES), choice.x);
	const logx = tick(" log axis", choice.logx, (on) => changed({ logx: on }, draw));
	const bands = tick(bandText, choice.bands, (on) => changed({ bands: on }));
	const weight = h("output");
	const smooth = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", oninput: () => smoother(), onchange: () => keep(choice) });
	const sought = search("add a chart: loss, return, …", () => offer());
	const found = h("div.row.found");
	const summary = h("summary");
	const list = h("details", { ontoggle: () => list.open && learn() }, summary, sought.element, found);
	let [answer, timer, turn, names, frame] = [null, 0, 0, null, 0];

	smooth.value = String(choice.smooth);
	sought.element.addEventListener("keydown", ({ key }) => key === "Enter" && found.firstElementChild?.click());

	function changed(news, act = load) {
		Object.assign(choice, news);
		keep(choice);
		layout();
		act();
	}

	// While the slider moves: once a frame; stored when the slider stops.
	function smoother() {
		choice.smooth = Number(smooth.value);
		say(weight, choice.smooth.toFixed(2));
		frame ||= requestAnimationFrame(() => {
			frame = 0;
			draw();
		});
	}

	const shownRuns = () => runs(choice.bands).slice(0, MOST);

	async function load() {
		clearTimeout(timer);
		const [all, run, mine] = [runs(choice.bands).length, shownRuns(), ++turn];
		if (!run.length) return;
		try {
			const newer = await api.get("api/curves", { run, y: choice.charts, x: choice.x, points: run.length > MANY ? 120 : 400 }, abort.signal);
			if (mine !== turn) return;
			answer = newer;
			const files = newer.charts.flatMap((one) => one.runs);
			const part = new Set(files.filter(({ exact }) => exact === false).map((one) => one.run)).size;
			const failed = files.find(({ error }) => error);
			say(told, [part && `${plural(part, "file")} still being read`, failed && `${failed.run}: ${failed.error}`, all > MOST && `the first ${MOST} runs`].filter(Boolean).join("; "));
			await draw();
			if (part && !abort.signal.aborted) timer = setTimeout(load, AGAIN_MS + 20 * run.length);
		} catch (error) {
			if (!abort.signal.aborted && mine === turn) say(told, error.message);
		}
	}

	async function draw() {
		if (answer?.x !== choice.x) return;
		const { logx, smooth } = choice;
		await Promise.all(answer.charts.map((one) => cards.get(one.y)?.picture.show(lines(one, choice.bands), choice.x, {
			logx, smooth, logy: choice.log.includes(one.y), marks: marks(one, choice.x), wrong: one.error,
		})));
	}

	// The cards in order; existing cards stay unchanged.
	function layout() {
		say(weight, choice.smooth.toFixed(2));
		for (const [y, card] of cards) {
			if (choice.charts.includes(y)) continue;
			card.picture.close();
			card.element.remove();
			cards.delete(y);
		}
		choice.charts.forEach((y, at) => {
			const card = cards.get(y) ?? made(y);
			cards.set(y, card);
			if (grid.children[at] !== card.element) grid.insertBefore(card.element, grid.children[at] ?? null);
			card.update(at);
		});
		offer();
	}

	function made(y) {
		const picture = chart(named(y), 260);
		const button = (text, label, act) => h("button.small", { "aria-label": `${label}: ${named(y)}`, title: label, onclick: act }, text);
		const log = button("log", "Logarithmic axis", () => changed({ log: choice.log.includes(y) ? choice.log.filter((one) => one !== y) : [...choice.log, y] }, draw));
		const by = (step) => ({ currentTarget }) => {
			move(y, choice.charts.indexOf(y) + step);
			[currentTarget, before, after].find(({ disabled }) => !disabled).focus();
		};
		const [before, after] = [button("◀", "Move before", by(-1)), button("▶", "Move behind", by(1))];
		const csv = button("CSV", "Download all values", () => download(y, csv));
		const remove = button("✕", "Remove", () => {
			toggle(y);
			grid.querySelector("button.small:enabled").focus();
		});
		const grip = h("h3.grow", { draggable: "true", ondragstart: ({ dataTransfer }) => dataTransfer.setData("text/plain", y) }, named(y));
		const element = h("section", { "aria-label": named(y), ondragover: (event) => event.preventDefault(), ondrop(event) {
			event.preventDefault();
			const dropped = event.dataTransfer.getData("text/plain");
			if (cards.has(dropped)) move(dropped, choice.charts.indexOf(y));
		} }, h("div.row", grip, h("div.tools", log, before, after, csv, remove)), picture.element);
		return { element, picture, update(at) {
			log.setAttribute("aria-pressed", String(choice.log.includes(y)));
			before.disabled = at === 0;
			after.disabled = at === choice.charts.length - 1;
			remove.disabled = choice.charts.length === 1;
		} };
	}

	function move(y, to) {
		const rest = choice.charts.filter((one) => one !== y);
		changed({ charts: rest.toSpliced(to, 0, y) }, () => null);
	}

	function toggle(y) {
		const there = choice.charts.includes(y);
		changed({ charts: there ? choice.charts.filter((one) => one !== y) : [...choice.charts, y] }, there && answer ? () => null : load);
	}

	async function download(y, button) {
		button.disabled = true;
		try {
			const content = await (await api.raw(`api/csv${query({ run: shownRuns(), y })}`, { signal: abort.signal })).blob();
			const href = URL.createObjectURL(content);
			h("a", { href, download: `${y.replaceAll("/", "_")}.csv` }).click();
			setTimeout(() => URL.revokeObjectURL(href), AGAIN_MS);
		} catch (error) {
			if (!abort.signal.aborted) say(told, error.message);
		}
		button.disabled = false;
	}

	// The names of quantities are requested at the first look.
	async function learn() {
		try {
			const metrics = names ?? await api.get("api/metrics", { run: runs(true).slice(0, MOST) }, abort.signal);
			names = Array.isArray(metrics) ? metrics : Object.entries(metrics).flatMap(([source, all]) => all.map((name) => `${source}/${name}`));
			offer();
		} catch (error) {
			if (!abort.signal.aborted) say(told, error.message);
		}
	}

	function offer() {
		say(summary, `Choose charts (${choice.charts.length} shown, at most ${MOST_CHARTS})`);
		if (!names) return;
		const focused = document.activeElement?.closest?.(".found button")?.textContent;
		const all = [...new Set([RETURN, ...names, ...choice.charts])].filter((y) => sought.has(named(y), y));
		fill(found, all.slice(0, MOST_NAMES).map((y) => h("button.small", {
			"aria-pressed": String(choice.charts.includes(y)), onclick: () => toggle(y),
			disabled: choice.charts.includes(y) ? choice.charts.length === 1 : choice.charts.length === MOST_CHARTS,
		}, named(y))), all.length > MOST_NAMES && h("span.quiet", `and ${all.length - MOST_NAMES} more: search for them`), !all.length && h("span.quiet", "No run has such a quantity."));
		if (focused) [...found.children].find((one) => one.textContent === focused)?.focus();
	}

	layout();
	load();
	return {
		element: h("section.card", h("div.row", h("h2", "Curves"), told, more),
			h("div.row", h("label", "Smoothing ", smooth, " ", weight), h("label", "over ", x), logx, bandText && bands), list, grid),
		draw: load,
		close() {
			abort.abort();
			clearTimeout(timer);
			cancelAnimationFrame(frame);
			for (const { picture } of cards.values()) picture.close();
		},
	};
}

const tick = (text, on, act) => h("label", h("input", { type: "checkbox", checked: on, onchange: ({ target }) => act(target.checked) }), text);
