// Runs beside each other: their curves, and a table of what differs between them and what came out.

import { runAddress } from "./api.js";
import { charts } from "./charts.js";
import { badge, h, runLink } from "./dom.js";
import { count, digits, duration, plural, spread, written } from "./format.js";
import { lineage } from "./lineage.js";
import { column, table } from "./table.js";

export async function view({ api, go }, route) {
	const [asked, sweep] = [route.query.getAll("run"), route.query.get("sweep")];
	const answer = await api.get("api/compare", { run: asked, sweep });
	const names = answer.columns.map(({ name }) => name);
	const found = answer.rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]])));
	const runs = found.map(({ run }) => run).filter(Boolean);
	const rows = table("Runs", answer.columns.map(({ name, kind }) => {
		const kinds = kind === "result" && found.some((row) => typeof row[name] === "number") ? "number" : name === "run" ? "name" : "";
		return column(name, kind === "result" ? name.replaceAll("_", " ") : name, (value) => cell(name, kind, value, sweep), kinds);
	}), { key: ({ run }) => run, link: ({ run }) => runAddress(run), empty: "There is no run to compare.", order: { key: "best_return", descending: true }, headed: true });
	rows.show(found);
	const variants = table("Variants: mean ± deviation", [
		column("variant", "Variant", undefined, "name long"), column("seeds", "Runs", (many, { finished }) => `${finished} of ${many} finished`, "number"),
		column("best_mean", "Best return", (mean, row) => spread(mean, row.best_std), "number"), column("last_mean", "Last return", (mean, row) => spread(mean, row.last_std), "number"),
	], { key: ({ variant }) => variant, order: { key: "best_mean", descending: true }, headed: true });
	variants.show(answer.variants);
	const curves = charts(api, () => runs);
	const tree = lineage(go);
	const family = sweep && (await api.get("api/lineage", { sweep }));
	const abort = new AbortController();
	if (family) tree.show(family);
	const title = sweep ? `Sweep ${sweep}` : "Compare";
	const which = asked.length || sweep ? `${plural(runs.length, "run")}.` : `All runs: ${count(runs.length)}. Tick some under Runs.`;
	return {
		title,
		element: [h("h1", title), h("p.quiet", which), tree.element, curves.element, variants.element, rows.element],
		stream: () => ({ runs: family?.members ? 1 : null }),
		on: { runs: () => api.get("api/lineage", { sweep }, abort.signal).then(tree.show, () => null) },
		close() {
			abort.abort();
			tree.close();
			curves.close();
		},
	};
}

function cell(name, kind, value, sweep) {
	if (name === "run") return runLink(value, sweep ? value?.split("/").at(-1) : value);
	if (value === null || value === undefined) return "–";
	if (name === "state") return badge(value);
	if (name === "wall_s") return duration(value);
	if (kind === "setting" || typeof value !== "number") return written(value);
	return Number.isInteger(value) ? count(value) : digits(value);
}
