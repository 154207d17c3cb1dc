// Where each role's time goes: shares of time as the outlines of a picture, and as words.

// Every kind of time, from the bottom of a lane to its top: waits lie above what is done.
export const KINDS = ["work", "env", "wait_credit", "wait_batches", "wait_policy", "wait_disk", "wait_workers", "wait_other"];
export const WAITS = KINDS.slice(2);

const WORDS = {
	work: ["works"],
	env: ["steps environments"],
	wait_credit: ["waits for credit", "the learner is slower, or a new policy has to come first"],
	wait_batches: ["waits for batches", "its collectors are slower; more of them would help"],
	wait_policy: ["waits for a policy", "one is loaded or published"],
	wait_disk: ["waits for the disk", "the disk of the run takes no writes"],
	wait_workers: ["waits for workers", "the herd has none for it"],
	wait_other: ["waits for something else", "acknowledgements, or the end"],
};
const WORDS_OF = {
	"evaluator wait_batches": ["waits for an evaluation", "no checkpoint is due"],
	"reanalyzer wait_batches": ["waits for rows", "there is nothing to compute again"],
	"coordinator wait_other": ["waits for messages", "it has nothing to do"],
};

// What a kind of time is called for a role, and why a role waits so.
export const name = (kind, role) => (WORDS_OF[`${role} ${kind}`] ?? WORDS[kind])[0];
export const because = (kind, role) => (WORDS_OF[`${role} ${kind}`] ?? WORDS[kind])[1] ?? "";

// An answer of /api/timeline as lanes, by role: {role, bins, total, recent}. A bin is {from_s, to_s, shares}, `shares` null
// where nothing is known; `total` has the shares of the whole time, `recent` of its last `recent_s` seconds.
export function lanesOf(answer, recent_s = 120) {
	return new Map(answer.roles.map(({ role, shares }) => {
		const bins = answer.begin_s.map((begin_s, at) => {
			const own = Object.entries(shares).map(([kind, values]) => [kind, values[at]]).filter(([, value]) => Number.isFinite(value));
			return { from_s: Math.min(begin_s, answer.end_s[at - 1] ?? begin_s), to_s: answer.end_s[at], shares: own.length ? Object.fromEntries(own) : null };
		});
		// A report covers the time since the one before it.
		for (let at = bins.length - 2; at >= 0; at--) bins[at].shares ??= bins[at + 1].shares;
		const end_s = answer.end_s.at(-1) ?? 0;
		return [role, { role, bins, total: together(bins), recent: together(bins.filter(({ to_s }) => to_s > end_s - recent_s)) }];
	}));
}

export function together(bins) {
	const known = bins.filter(({ shares }) => shares);
	const length_s = known.reduce((sum, { from_s, to_s }) => sum + to_s - from_s, 0);
	const all = {};
	for (const { from_s, to_s, shares } of known) {
		for (const [kind, value] of Object.entries(shares)) all[kind] = (all[kind] ?? 0) + (value * (to_s - from_s)) / (length_s || 1);
	}
	return all;
}

// The outline of each kind in a picture of this size: Map from kind to the `d` of a path, the first of KINDS at the bottom.
// `from_s` is the left edge of the picture, `to_s` the right one.
export function outlines({ bins }, from_s, to_s, width, height) {
	const found = new Map();
	const tenth = (value) => Math.round(value * 10) / 10;
	const x = (time_s) => tenth(((time_s - from_s) / Math.max(to_s - from_s, 1e-9)) * width);
	for (const bin of bins) {
		let below = 0;
		for (const kind of KINDS) {
			const above = Math.min(below + (bin.shares?.[kind] ?? 0), 1);
			const [top, bottom] = [above, below].map((share) => tenth(height * (1 - share)));
			if (bottom > top) found.set(kind, `${found.get(kind) ?? ""}M${x(bin.from_s)} ${top}H${x(bin.to_s)}V${bottom}H${x(bin.from_s)}Z`);
			below = above;
		}
	}
	return found;
}

export const binAt = ({ bins }, time_s) => bins.find(({ from_s, to_s, shares }) => from_s <= time_s && time_s <= to_s && shares);

export const ranked = (shares, kinds = KINDS) => kinds.filter((kind) => shares[kind] >= 0.01).sort((a, b) => shares[b] - shares[a]);

// "works 80 %, waits for credit 20 %"
export const spoken = (shares, role, share, kinds = KINDS) => ranked(shares, kinds).map((kind) => `${name(kind, role)} ${share(shares[kind])}`).join(", ");

// Round marks on an axis of seconds, about `most` of them.
export function marks(from_s, to_s, most = 6) {
	const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
	const wanted = (to_s - from_s) / most;
	const step = steps.find((each) => each >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
	const first = Math.ceil(from_s / step);
	return Array.from({ length: Math.max(Math.floor(to_s / step) - first + 1, 0) }, (_, at) => (first + at) * step);
}
