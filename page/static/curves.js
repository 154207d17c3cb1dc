// Curves as the server thins them, as lines of a chart.

// What a chart shows of an answer of /api/curves: a line per group of seeds with a band of one standard deviation, and
// one per other run, with a band of what was thinned: {name, x, mean, low, high}.
export function lines(answer, bands = true) {
	const groups = bands ? answer.groups.filter(({ runs }) => runs.length > 1) : [];
	const within = new Set(groups.flatMap(({ runs }) => runs));
	const alone = answer.runs.filter(({ run }) => !within.has(run));
	return [
		...groups.map(({ group, runs, ...line }) => ({ ...line, name: `${group} (${runs.length} seeds)` })),
		...alone.map(({ run, x, last, min, max }) => ({ name: run.replace("//", ", "), x, mean: last, low: min, high: max })),
	].filter(({ x }) => x.length);
}

export const hasBand = ({ low, high }) => Boolean(low?.some((value, at) => Number.isFinite(value) && high[at] > value));

// What a chart says to somebody who cannot see it.
export function summary({ mean }) {
	const values = mean.filter(Number.isFinite);
	return values.length ? { last: values.at(-1), most: values.reduce((a, b) => Math.max(a, b)) } : null;
}
