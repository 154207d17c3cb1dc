// The settings of a run, and the differences from another run.

import { choose } from "./dialog.js";
import { fill, h, newest, say, search } from "./dom.js";
import { plural, written } from "./format.js";
import { column, table } from "./table.js";

const MOST = 500;

export async function section({ api }, { name: run }) {
	const sought = search("setting or value", () => show());
	const { runs } = await api.get("api/runs");
	const known = newest(runs).map((one) => one.run).filter((name) => name && name !== run).slice(0, MOST);
	const other = choose(h("select", { onchange: () => load() }), [["", "no other run"], ...known.map((name) => [name, name])], "");
	const differing = h("input", { type: "checkbox", onchange: () => show() });
	const only = h("label", differing, " only what differs");
	const told = h("p.quiet");
	const text = h("pre.card.scroll", { tabindex: "0" });
	const card = h("div");
	let [answer, settings] = [null, null];

	const cell = (at) => (_, { values, missing, differs }) => (missing?.[at] ? h("span.quiet", "not set") : h(differs ? "code.wait" : "code", written(values[at])));

	async function load() {
		answer = await api.get("api/config", { run: [run, other.value] });
		only.hidden = !other.value;
		differing.checked = Boolean(other.value);
		settings = table("Settings", [column("key", "Setting", (key) => h("code", key), "title"), ...answer.runs.map((name, at) => column(`value ${at}`, answer.runs.length > 1 ? name : "Value", cell(at), answer.runs.length > 1 ? "long plain" : "long title plain")),
			column("source", "From", (source) => source?.[0], "wide")], { key: ({ key }) => key, empty: "There is no such setting." });
		fill(card, settings.element);
		if (answer.texts?.length) fill(text, answer.texts[0]);
		show();
	}

	function show() {
		const found = answer.settings.filter(({ key, values, differs }) => (differs || !differing.checked) && sought.has(key, ...values.map(written)));
		say(told, `${plural(found.length, "setting")} of ${answer.settings.length}.`);
		settings.show(found);
	}

	await load();
	return {
		element: [h("div.row", sought.element, h("label", "beside ", other), only), told, card, h("details", h("summary", "As a file"), text)],
	};
}
