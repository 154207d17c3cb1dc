// Learning curves of some runs, with a choice of their axes, and their seeds as bands.

import { AXES, chart } from "./chart.js";
import { lines } from "./curves.js";
import { choose } from "./dialog.js";
import { h, say } from "./dom.js";
import { plural } from "./format.js";

const AGAIN_MS = 1000;
const MOST = 200;
const MANY = 40;
const RETURN = "evaluation/return_mean";

// `runs(bands)` names the runs, `names` what may be drawn of them.
export function curveCard(api, runs, { names = [], bandText = " seeds as bands", more = null }) {
	const picture = chart("Return");
	const abort = new AbortController();
	const again = { onchange: () => draw() };
	const y = choose(h("select", again, { "aria-label": "Curve" }), [...new Set([RETURN, ...names])].map((name) => [name, name === RETURN ? "return of evaluations" : name]), RETURN);
	const x = choose(h("select", again), Object.entries(AXES), "env_step");
	const bands = h("input", again, { type: "checkbox", checked: true });
	const told = h("span.quiet.grow");
	let timer = 0;

	async function draw() {
		clearTimeout(timer);
		const all = runs(bands.checked);
		const run = all.slice(0, MOST);
		if (!run.length) return;
		try {
			const answer = await api.get("api/curves", { run, y: y.value, x: x.value, points: run.length > MANY ? 120 : 400 }, abort.signal);
			const [part, failed] = [answer.runs.filter(({ exact }) => exact === false).length, answer.runs.filter(({ error }) => error)];
			say(told, [part && `${plural(part, "file")} still being read`, failed.length && `${failed[0].run}: ${failed[0].error}`, all.length > MOST && `the first ${MOST} runs`].filter(Boolean).join("; "));
			await picture.show(lines(answer, bands.checked), x.value);
			if (part && !abort.signal.aborted) timer = setTimeout(draw, AGAIN_MS + 20 * run.length);
		} catch (error) {
			if (!abort.signal.aborted) say(told, error.message);
		}
	}

	draw();
	return {
		element: h("section.card", h("div.row", h("h2", "Curves"), told, bandText && h("label", bands, bandText), more, y, h("label", "over ", x)), picture.element),
		draw,
		close() {
			abort.abort();
			clearTimeout(timer);
			picture.close();
		},
	};
}
