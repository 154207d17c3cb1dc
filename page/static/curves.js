// Curves as the server thins them, as lines of a chart.

// What a chart shows of one quantity of an answer of /api/curves: a line per group of seeds with a band of one standard
// deviation, and one per other run, with a band of what was thinned: {name, x, mean, low, high}.
export function lines({ runs: all, groups: together }, bands = true) {
	const groups = bands ? together.filter(({ runs }) => runs.length > 1) : [];
	const within = new Set(groups.flatMap(({ runs }) => runs));
	const alone = all.filter(({ run }) => !within.has(run));
	return [
		...groups.map(({ group, runs, ...line }) => ({ ...line, seeds: runs.length, name: `${group} (${runs.length} seeds)` })),
		...alone.map(({ run, x, last, min, max }) => ({ name: run.replace("//", ", "), x, mean: last, low: min, high: max })),
	].filter(({ x }) => x.length);
}

// What happened to the runs of one quantity, as {at, text}, each once, in order. A mark that has no such x is left out.
export function marks({ runs }, x) {
	const all = runs.flatMap((run) => run.marks ?? []).filter((mark) => Number.isFinite(mark[x])).map((mark) => ({ at: mark[x], text: String(mark.text) }));
	return [...new Map(all.map((mark) => [`${mark.at} ${mark.text}`, mark])).values()].sort((a, b) => a.at - b.at);
}

export const hasBand = ({ low, high }) => Boolean(low?.some((value, at) => Number.isFinite(value) && high[at] > value));

// The exponential mean of the values so far, as TensorBoard has it where points are evenly spaced: divided by the weight of
// all values, so that it does not begin at 0. Of points that lie closer together each counts for less: the points of a
// group are those of all its seeds. What is no number stays as it is, and counts for nothing.
export function smoothed(x, values, weight, seeds = 1) {
	const usual = (x.at(-1) - x[0]) / Math.max(x.length / seeds - 1, 1);
	let [sum, whole, before] = [0, 0, null];
	return values.map((value, at) => {
		if (!Number.isFinite(value)) return value;
		const kept = weight ** (before === null || !usual ? 1 : (x[at] - before) / usual);
		[sum, whole, before] = [kept * sum + (1 - kept) * value, kept * whole + (1 - kept), x[at]];
		return sum / whole;
	});
}

// A line as it is drawn: smoothed, and without what a logarithmic axis cannot show. `raw` is the line before smoothing;
// `hidden` counts points that are left out. A band goes down to the least value that is drawn.
export function drawable({ name, x, mean, low, high, seeds }, { logx = false, logy = false, smooth = 0 }) {
	const there = x.map((at, index) => index).filter((index) => !logx || x[index] > 0);
	const of = (values) => values && there.map((index) => values[index]);
	const positive = (values) => (logy ? values.map((value) => (value > 0 ? value : null)) : values);
	const [own, raw] = [{ name, x: of(x), low: of(low), high: of(high) }, of(mean)];
	const shown = positive(smooth ? smoothed(own.x, raw, smooth, seeds) : raw);
	const floor = logy ? Math.min(...positive(raw).filter(Number.isFinite)) : -Infinity;
	const edge = (values) => values?.map((value) => (Number.isFinite(value) ? Math.max(value, floor) : value));
	return {
		...own, mean: shown, raw: smooth ? positive(raw) : null, low: edge(own.low), high: edge(own.high),
		hidden: x.length - there.length + (logy ? raw.filter((value) => Number.isFinite(value) && value <= 0).length : 0),
	};
}

// Where a value stands between gaps: no line shows it. Undefined is no gap, but where another line has a point.
export function isolated(values) {
	const own = values.map((value, at) => at).filter((at) => values[at] !== undefined);
	const gap = (at) => at === undefined || values[at] === null;
	return own.filter((at, index) => values[at] !== null && gap(own[index - 1]) && gap(own[index + 1]));
}

// What a chart says to somebody who cannot see it.
export function summary({ mean }) {
	const values = mean.filter(Number.isFinite);
	return values.length ? { last: values.at(-1), most: values.reduce((a, b) => Math.max(a, b)) } : null;
}
