// Rows in the order of one column. What is missing comes last, in both directions.

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const missing = (value) => value === null || value === undefined || Number.isNaN(value);
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// Numbers by size, all else as text in which numbers count as numbers: "run 9" before "run 10".
export const compare = (a, b) =>
	typeof a === "number" && typeof b === "number" ? a - b : natural.compare(text(a), text(b));

// A new list; equal rows keep their order. `order`: null or {key, descending}; `value(row)` is what is compared.
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
