// All runs, to look for one or to choose some to compare.

import { chips } from "./actions.js";
import { address, runAddress } from "./api.js";
import { allRuns, badge, fill, h, newest, runKey, runLink, say, search } from "./dom.js";
import { ago, count, duration, number, plural, rate } from "./format.js";
import { column, table } from "./table.js";

const MOST = 500;

export async function view(context) {
	const chosen = new Set();
	const head = h("p.quiet");
	const sought = search("name, environment, algorithm, state, tag, note", () => show());
	const compare = h("button", { onclick: () => context.go(address(["compare"], { run: [...chosen] })) });
	const sweeps = h("div.row");
	const tick = (run) => run && h("input", { type: "checkbox", "aria-label": `Compare ${run}`, onchange({ target }) {
		chosen[target.checked ? "add" : "delete"](run);
		offer();
	} });
	const named = (run, { name, note, tags }) => h("div", runLink(run, run ?? name), (note || tags.length > 0) && h("div.noted", { title: note }, chips(tags, only), note));
	const only = (tag) => {
		sought.element.value = tag;
		show();
	};
	const listed = table("Runs", [
		column("run", "", tick, "plain bare"), column("run", "Run", named, "name"), column("state", "State", badge, "bare"),
		column("env", "Environment"), column("algorithm", "Algorithm", undefined, "wide"), column("seed", "Seed", count, "wide number"),
		column("best_return", "Best return", number, "number"), column("last_return", "Last", number, "number wide"),
		column("env_step", "Steps", count, "number"), column("env_steps_per_s", "Steps/s", (value, { live }) => rate(live ? value : null), "number wide"),
		column("wall_s", "Time", duration, "number wide"), column("changed_s", "Changed", (time_s) => ago(time_s), "number wide"),
	], { key: runKey, link: ({ run }) => run && runAddress(run), order: { key: "changed_s", descending: true }, empty: "There is no such run." });

	function offer() {
		say(compare, chosen.size ? `Compare ${plural(chosen.size, "run")}` : "Tick runs to compare them");
		compare.disabled = !chosen.size;
	}

	const all = allRuns(show);
	function show() {
		if (!all.news) return;
		const found = newest([...all.runs.values()].filter(({ run, name, env, algorithm, state, tags, note }) => sought.has(run ?? name, env, algorithm, state, ...tags, note)));
		const more = found.length > MOST ? `; the ${MOST} that changed last are shown: search for others` : "";
		say(head, `${plural(found.length, "run")}${all.news.complete ? "" : " (of more than were searched for)"}${more}.`);
		listed.show(found.slice(0, MOST));
		fill(sweeps, all.news.sweeps.map(({ sweep, runs }) => h("a.button", { href: address(["compare"], { sweep }) }, `sweep ${sweep} (${count(runs)})`)));
	}
	offer();
	return {
		title: "Runs",
		element: [h("h1", "Runs"), h("div.row", sought.element, compare), sweeps, head, listed.element],
		stream: () => ({ runs: 1 }),
		on: { runs: all.take },
	};
}
