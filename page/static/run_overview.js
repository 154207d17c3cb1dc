// The state of a run: numbers, shares of time, curves, rates and events.

import { address } from "./api.js";
import { chart } from "./chart.js";
import { charts } from "./charts.js";
import { fact, fill, h, OVER, say } from "./dom.js";
import { clock, count, digits, duration, number, plural, rate } from "./format.js";
import { column, table } from "./table.js";
import { lanes } from "./timeline.js";

const CALM_MS = 2000;
const RATES = {
	env_steps_per_s: "Environment steps per second",
	train_iters_per_s: "Updates per second",
	policy_lag: "Policy lag, in versions",
	samples_per_insert: "Samples per insert",
	buffer_rows: "Rows in the replay index",
	return_mean: "Mean return of training episodes",
};
const BAD = ["worker_died", "worker_failed", "held_up"];

export async function section({ api }, about) {
	const { name: run, detail } = about;
	const abort = new AbortController();
	const facts = h("dl.facts.card");
	const wrong = h("p.bad", { role: "status" });
	const events = h("div.log.short", { tabindex: "0", role: "region", "aria-label": "Events" });
	const time = lanes();
	const rates = Object.entries(RATES).map(([name, text]) => ({ name, text, picture: chart(text, 170) }));
	const rateCards = h("div.cards");
	const { runs } = await api.get("api/runs");
	const mine = runs.find((one) => one.run === run)?.group; // what a group is called depends on all runs
	const group = runs.filter((one) => one.run === run || (one.run && one.group === mine)).map((one) => one.run);
	const curves = charts(api, (bands) => (bands ? group : [run]), {
		bandText: group.length > 1 && ` all ${group.length} seeds as a band`,
		more: group.length > 1 && h("a", { href: address(["compare"], { run: group }) }, "compare them"),
	});
	const policies = about.policies.length > 0 && table("Policies", [
		column("name", "Policy", undefined, "name"), column("train_iter", "Updates", count, "number"), column("train_iters_per_s", "Updates/s", rate, "number"),
		column("last_return", "Last return", number, "number"), column("best_return", "Best return", number, "number"),
		column("policy_lag", "Policy lag", count, "number"), column("samples_per_insert", "Samples per insert", number, "number"),
	], { key: ({ name }) => name });
	let [timer, drawn_ms] = [0, 0];

	function numbers() {
		const { run: now } = about;
		if (policies) policies.show(now.policies);
		const { stop = {}, ledger } = detail;
		const of = (bound, as = count) => (bound ? `of ${as(bound)}` : null);
		const going = !OVER.includes(now.state);
		fill(facts, fact("Environment steps", count(now.env_step), of(stop.max_env_steps)), fact("Best return", digits(now.best_return), of(stop.stop_value, digits)),
			fact("Last return", digits(now.last_return)), fact("Updates", count(now.train_iter), of(stop.max_train_iters)), fact("Episodes", count(now.episode)),
			going && [fact("Pace", rate(now.env_steps_per_s), "steps"), fact("Learner's pace", rate(now.train_iters_per_s), "updates")],
			fact("Policy lag", count(now.policy_lag), now.policy_lag === 1 ? "version" : "versions"), fact("Samples per insert", digits(now.samples_per_insert, 3)),
			ledger && [fact("Chunks", count(ledger.accepted_chunks), `${count(ledger.repeated_chunks)} repeated`), fact("Chunks lost", `${ledger.lost_collectors ? "≤ " : ""}${count(ledger.lost_chunks_most)}`)],
			fact("Time", duration(now.wall_s), of(stop.max_wall_s, duration)));
	}

	async function drawTime() {
		const answer = await got("api/timeline", { run: about.one, buckets: 200 });
		if (!answer) return;
		time.show(answer);
		const shown = rates.filter(({ name }) => answer.rates[name]?.some(Number.isFinite));
		if (rateCards.children.length !== shown.length) fill(rateCards, shown.map(({ text, picture }) => h("section.card", h("h3", text), picture.element)));
		for (const { name, picture } of shown) picture.show([{ name: "", x: answer.end_s, mean: answer.rates[name] }], "wall_s");
		fill(events, answer.events.toReversed().map(({ event, wall_s, time_s, text }) => h(BAD.includes(event) ? "div.bad" : "div", { title: clock(time_s) }, `${duration(wall_s).padStart(8)}  ${text}`)),
			answer.events_left_out > 0 && h("div.quiet", `${plural(answer.events_left_out, "earlier event")} not shown`), !answer.events.length && h("div.quiet", "Nothing has happened yet."));
	}

	const got = (path, parameters) => api.get(path, parameters, abort.signal).catch((error) => {
		if (!abort.signal.aborted) say(wrong, error.message);
	});

	// New points come often, and are drawn at most every CALM_MS.
	function soon() {
		timer ||= setTimeout(async () => {
			drawn_ms = performance.now();
			const [newer] = await Promise.all([got("api/run", { run }), curves.draw(), drawTime()]);
			Object.assign(detail, newer);
			numbers();
			timer = 0;
		}, Math.max(0, drawn_ms + CALM_MS - performance.now()));
	}

	numbers();
	drawTime();
	return {
		element: [facts, wrong, policies?.element, h("section.card", h("h2", "Where the time goes"), time.element), curves.element, rateCards,
			h("section", h("h2", "Events, the newest first"), events)],
		on: { run: numbers, points: soon, curves: soon },
		close() {
			abort.abort();
			clearTimeout(timer);
			for (const { close } of [curves, ...rates.map(({ picture }) => picture)]) close();
		},
	};
}
