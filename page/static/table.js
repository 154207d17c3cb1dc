// A table with sorting by heads, which keeps the elements of its rows, so that the focus stays.

import { fill, h, keep } from "./dom.js";
import { NONE, written } from "./format.js";

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

// Numbers by size, other values as text with numeric order: "run 9" before "run 10".
const compare = (a, b) =>
	typeof a === "number" && typeof b === "number" ? a - b : natural.compare(written(a), written(b));

// A new list; equal rows keep their order. `order`: null or {key, descending}; `value(row)` is compared.
export function sorted(rows, order, value) {
	if (!order) return [...rows];
	return [...rows].sort((left, right) => {
		const [a, b] = [value(left), value(right)];
		if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
		return (order.descending ? -1 : 1) * compare(a, b);
	});
}

export const turned = (order, key, descending) =>
	({ key, descending: order?.key === key ? !order.descending : descending });

// A column: `show(value, row)` gives a text or an element. `kinds`: "number" (the largest first), "wide" (not on phones),
// "long" (wraps), "plain" (does not sort). On phones "name" and "title" head a card, and "bare" has no head. It sorts by row[key].
export const column = (key, head, show = (value) => value, kinds = "") => ({ key, head, show, kinds });

// `key(row)` names a row; `link(row)` is where Enter leads; `headed` shows the caption.
export function table(caption, columns, { key, order = null, link = null, empty = "Nothing here yet.", headed = false }) {
	let rows = [];
	const heads = h("tr");
	const body = h("tbody");
	const nothing = h("p.quiet.empty", empty);
	const grid = h("table", h("caption.unseen", caption), h("thead", heads), body);
	const element = h("section.card.flush", headed && h("h2", caption), h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption }, grid), nothing);

	function head() {
		fill(heads, columns.map((one, at) => {
			const plain = one.kinds.includes("plain");
			const sort = order?.key === one.key && !plain ? (order.descending ? "descending" : "ascending") : null;
			const turn = () => {
				order = turned(order, one.key, one.kinds.includes("number"));
				head();
				shown();
				heads.children[at].firstChild.focus();
			};
			return h("th", { scope: "col", class: one.kinds, "aria-sort": sort }, plain ? one.head : h("button", { onclick: turn }, one.head));
		}));
	}

	function shown() {
		const make = () => h("tr", { tabindex: link ? "-1" : null }, columns.map(({ kinds, head }) => h("td", { class: kinds, "data-head": head })));
		keep(body, sorted(rows, order, (row) => row[order.key]), key, make, (line, row) => {
			if (line.shown === row) return;
			line.shown = row;
			columns.forEach((one, at) => put(line.children[at], one.show(row[one.key], row)));
			if (link) line.dataset.link = link(row) ?? "";
		});
		nothing.hidden = rows.length > 0;
		grid.hidden = !nothing.hidden;
	}

	head();
	shown();
	return {
		element,
		show(newer) {
			rows = newer;
			shown();
		},
	};
}

function put(cell, shown) {
	if (!(shown instanceof Node)) {
		const text = String(shown ?? NONE);
		cell.classList.toggle("none", text === NONE || !text);
		if (cell.textContent !== text) cell.textContent = text;
		return;
	}
	cell.classList.remove("none");
	if (!cell.firstChild?.isEqualNode(shown) && !cell.contains(document.activeElement)) cell.replaceChildren(shown);
}

// Moves the focus by rows in its table, or to the first row of the page.
export function step(root, by) {
	const rows = [...root.querySelectorAll("tr[data-link]")];
	const at = rows.findIndex((row) => row.contains(document.activeElement));
	const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
	next?.focus();
	next?.scrollIntoView({ block: "nearest" });
	return Boolean(next);
}
