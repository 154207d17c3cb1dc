// Where each role's time goes: shares of time as the outlines of a picture, and as words.

// Intervals of which the number of processes is shown: in a single one some may not have reported.
const LATEST = 10;

export const isWait = (kind) => kind.startsWith("wait_");

// An answer of /api/timeline as lanes: {role, many, total, words, bins}. A bin is {from_s, to_s, shares}, `shares` null where
// nothing is known; `total` has the shares of the whole time.
export const lanesOf = ({ begin_s, end_s, kinds, roles }) => roles.map(({ role, total, words, shares, processes }) => ({
	role, total, words,
	many: Math.round(Math.max(...processes.slice(-LATEST))),
	bins: begin_s.map((from_s, at) => ({
		from_s: Math.min(from_s, end_s[at - 1] ?? from_s),
		to_s: end_s[at],
		shares: Number.isFinite(shares.work[at]) ? Object.fromEntries(kinds.map((kind) => [kind, shares[kind][at]])) : null,
	})),
}));

// The outline of each kind in a picture of this size: Map from kind to the `d` of a path, the first of `kinds` at the
// bottom. `from_s` is the left edge of the picture, `to_s` the right one.
export function outlines(bins, kinds, from_s, to_s, width, height) {
	const found = new Map();
	const tenth = (value) => Math.round(value * 10) / 10;
	const x = (time_s) => tenth(((time_s - from_s) / Math.max(to_s - from_s, 1e-9)) * width);
	for (const bin of bins) {
		let below = 0;
		for (const kind of kinds) {
			const above = Math.min(below + (bin.shares?.[kind] ?? 0), 1);
			const [top, bottom] = [above, below].map((share) => tenth(height * (1 - share)));
			if (bottom > top) found.set(kind, `${found.get(kind) ?? ""}M${x(bin.from_s)} ${top}H${x(bin.to_s)}V${bottom}H${x(bin.from_s)}Z`);
			below = above;
		}
	}
	return found;
}

export const binAt = ({ bins }, time_s) => bins.find(({ from_s, to_s, shares }) => from_s <= time_s && time_s <= to_s && shares);

// "works 80 %, waits for credit 20 %"
export const spoken = (shares, words, share, wanted = () => true) => Object.keys(shares)
	.filter((kind) => shares[kind] >= 0.01 && wanted(kind))
	.sort((a, b) => shares[b] - shares[a])
	.map((kind) => `${words[kind][0]} ${share(shares[kind])}`).join(", ");

// Round marks on an axis of seconds, about `most` of them.
export function marks(from_s, to_s, most = 6) {
	const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
	const wanted = (to_s - from_s) / most;
	const step = steps.find((each) => each >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
	const first = Math.ceil(from_s / step);
	return Array.from({ length: Math.max(Math.floor(to_s / step) - first + 1, 0) }, (_, at) => (first + at) * step);
}
