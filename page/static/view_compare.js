// Runs beside each other: their curves, and a table of what differs between them and what came out.

import { runAddress } from "./api.js";
import { charts } from "./charts.js";
import { badge, h, runLink } from "./dom.js";
import { count, digits, duration, plural, spread, written } from "./format.js";
import { lineage } from "./lineage.js";
import { column, table } from "./table.js";

const CALM_MS = 3000;

export async function view({ api, go }, route) {
	const [asked, sweep] = [route.query.getAll("run"), route.query.get("sweep")];
	const answer = await api.get("api/compare", { run: asked, sweep });
	const names = answer.columns.map(({ name }) => name);
	const found = answer.rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]])));
	const runs = found.map(({ run }) => run).filter(Boolean);
	const rows = table("Runs", answer.columns.map(({ name, kind }) => {
		const kinds = kind === "result" && found.some((row) => typeof row[name] === "number") ? "number" : name === "run" ? "name" : "";
		return column(name, kind === "result" ? name.replaceAll("_", " ") : name, (value) => cell(name, kind, value), kinds);
	}), { key: ({ run }) => run, link: ({ run }) => runAddress(run), empty: "There is no run to compare.", order: { key: "best_return", descending: true } });
	rows.show(found);
	const variants = table("Variants", [
		column("variant", "Variant", undefined, "name long"), column("runs", "Runs", (many, { finished }) => `${finished} of ${many} finished`, "number"),
		column("best_mean", "Best return", (mean, row) => spread(mean, row.best_std), "number"), column("last_mean", "Last return", (mean, row) => spread(mean, row.last_std), "number"),
	], { key: ({ group }) => group, order: { key: "best_mean", descending: true } });
	variants.show(answer.variants);
	const curves = charts(api, () => runs);
	const tree = lineage(go);
	const family = sweep ? await api.get("api/lineage", { sweep }) : { members: 0, runs: [] };
	tree.show(family);
	let [timer, closed] = [0, false];

	// A population under way grows.
	function grown() {
		timer ||= setTimeout(async () => {
			const newer = await api.get("api/lineage", { sweep }).catch(() => null);
			timer = 0;
			if (newer && !closed) tree.show(newer);
		}, CALM_MS);
	}

	const title = sweep ? `Sweep ${sweep}` : "Compare";
	const which = asked.length || sweep ? `${plural(runs.length, "run")}.` : `All runs: ${count(runs.length)}. Tick some under Runs.`;
	return {
		title,
		element: [h("h1", title), h("p.quiet", which), tree.element, curves.element, h("section.card.flush", h("h2", "Variants: mean ± deviation"), variants.element),
			h("section.card.flush", h("h2", "Runs"), rows.element)],
		stream: () => ({ runs: family.members ? 1 : null }),
		on: { runs: grown },
		close() {
			closed = true;
			clearTimeout(timer);
			tree.close();
			curves.close();
		},
	};
}

function cell(name, kind, value) {
	if (name === "run") return runLink(value);
	if (value === null || value === undefined) return "–";
	if (name === "state") return badge(value);
	if (name === "wall_s") return duration(value);
	if (kind === "setting" || typeof value !== "number") return written(value);
	return Number.isInteger(value) ? count(value) : digits(value);
}
