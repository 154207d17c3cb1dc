// The logs of a run and all its workers: the end of a file, new lines, earlier lines, and a search.

import { runAddress } from "./api.js";
import { choose } from "./dialog.js";
import { fill, h, say, search } from "./dom.js";
import { bytes, count, plural } from "./format.js";

const MOST_LINES = 5000;
const AFTER_MS = 300;

export async function section({ api, go }, { name: run }, route) {
	const { files } = await api.get("api/logs", { run });
	const here = files.find(({ file }) => file === route.query.get("file")) ?? files.find(({ source }) => source.endsWith("commander")) ?? files[0];
	if (!here) return { element: h("p.quiet", "It has written no log yet.") };
	const { file } = here;
	const shown = h("div.log", { tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off" });
	const told = h("span.quiet", { role: "status" });
	const which = h("select", { onchange: () => go(runAddress(run, "logs", { file: which.value })) });
	const ended = h("span.quiet", "This one writes no more.");
	const { element: field } = search("in the log", () => typed());
	const everywhere = h("input", { type: "checkbox", onchange: () => typed() });
	const following = h("button", { "aria-pressed": "true", onclick: () => follow(!follows()) }, "Follow");
	const earlier = h("button", { onclick: () => before() }, "Earlier lines");
	const later = h("button", { hidden: true, onclick: () => after() }, "Later lines");
	const abort = new AbortController();
	// The shown pieces with their first bytes; `end` is the end of the last piece.
	let [pieces, end, timer, turn, next] = [[], 0, 0, 0, null];

	function offer(known) {
		choose(which, inGroups(known).map((one) => [one.file, named(one)]), file);
		ended.hidden = !known.some((one) => one.file === file && one.worker && !one.alive);
	}

	// Workers come and go.
	async function again() {
		const newer = document.activeElement === which ? null : await api.get("api/logs", { run }).catch(() => null);
		if (newer && !abort.signal.aborted) offer(newer.files);
	}

	const follows = () => following.getAttribute("aria-pressed") === "true";
	const press = (on) => following.setAttribute("aria-pressed", on);
	const bottom = () => (shown.scrollTop = shown.scrollHeight);
	function follow(on) {
		press(on);
		if (on && (field.value || !later.hidden)) {
			field.value = "";
			load();
		} else if (on) bottom();
		return true;
	}

	const rows = (text) => (text ? text.replace(/\n$/, "").split("\n").map((line) => h(tone(line), line || " ")) : []);
	const piece = ({ begin, text }) => ({ begin, rows: rows(text) });
	const got = (parameters) => api.get("api/log", { run, file, lines: 500, ...parameters }, abort.signal).catch((error) => {
		if (!abort.signal.aborted) say(told, error.message);
	});

	// The end of the file, or the lines after an offset.
	async function load(from = null) {
		const mine = ++turn;
		const answer = await got({ after: from });
		if (!answer || mine !== turn) return;
		[pieces, end, next] = [[piece(answer)], answer.end, null];
		fill(shown, pieces[0].rows);
		earlier.hidden = from === null ? !answer.more_before : !from;
		later.hidden = from === null || !answer.more_after;
		say(told, bytes(answer.size_bytes));
		if (from === null && follows()) bottom();
	}

	async function before() {
		if (next !== null) return look(next);
		const mine = turn;
		const answer = await got({ before: pieces[0]?.begin });
		if (!answer || mine !== turn) return null;
		pieces.unshift(piece(answer));
		const below = shown.scrollHeight - shown.scrollTop;
		shown.prepend(...pieces[0].rows);
		shown.scrollTop = shown.scrollHeight - below;
		earlier.hidden = !answer.more_before;
		return null;
	}

	async function after() {
		const mine = turn;
		const answer = await got({ after: end });
		if (!answer || mine !== turn) return;
		add(answer);
		later.hidden = !answer.more_after;
	}

	function add(answer) {
		pieces.push(piece(answer));
		({ end } = answer);
		shown.append(...pieces.at(-1).rows);
	}

	function typed() {
		clearTimeout(timer);
		next = null;
		timer = setTimeout(() => (field.value.trim() ? look(null) : load()), AFTER_MS);
	}

	// Matching lines, from the end of the file backwards, with links to their offsets.
	async function look(from) {
		const mine = ++turn;
		const [text, all] = [field.value.trim(), everywhere.checked];
		const answer = await got({ file: all ? "*" : file, search: text, before: from });
		if (!answer || mine !== turn) return;
		const found = answer.matches.map((match) => h("div", { title: match.file },
			h("a", { href: runAddress(run, "logs", { file: match.file, at: match.begin }) }, all ? match.file : count(match.begin)), "  ", marked(match.text, text)));
		if (from === null) fill(shown);
		shown.append(...found);
		next = answer.more_before && !all ? answer.next_before : null;
		earlier.hidden = next === null;
		later.hidden = true;
		const more = !answer.more_before ? "" : all ? ", and more than can be shown: name one log" : ", and the file has earlier parts";
		say(told, `${plural(shown.children.length, "line")} with “${text}”, the newest first${more}`);
	}

	// New lines from the stream; whole pieces leave at the other end.
	function news({ file: whose, reset, text, begin, end: to }) {
		if (whose !== file || field.value.trim() || !later.hidden || (!reset && to <= end)) return null;
		if (!reset && begin !== end) return load();
		if (reset) {
			[pieces, earlier.hidden] = [[], true];
			fill(shown);
		}
		add({ begin, text, end: to });
		while (shown.children.length > MOST_LINES && pieces.length > 1) {
			for (const row of pieces.shift().rows) row.remove();
			earlier.hidden = false;
		}
		if (follows()) bottom();
		return null;
	}

	shown.addEventListener("wheel", ({ deltaY }) => deltaY < 0 && press(false), { passive: true });
	shown.addEventListener("keydown", ({ key }) => ["ArrowUp", "PageUp", "Home"].includes(key) && press(false));
	const at = route.query.get("at");
	offer(files);
	await load(at && Number(at));
	setTimeout(() => at === null && bottom());
	return {
		element: [h("div.row", h("label", "Log of ", which), field, h("label", everywhere, " in all logs"), following), h("div.row", earlier, told), shown,
			h("div.row", later, ended)],
		stream: () => ({ log: file, after: end }),
		shortcuts: { f: () => follow(!follows()) },
		on: { log: news, points: again },
		close() {
			abort.abort();
			clearTimeout(timer);
		},
	};
}

const tone = (line) => (/\[(ERROR|CRITICAL)\]|^Traceback/.test(line) ? "div.bad" : line.includes("[WARNING]") ? "div.wait" : /^[+|]/.test(line) ? "div.grid" : "div");

export function inGroups(files) {
	const place = ({ worker, alive }) => (worker === null ? 0 : alive ? 1 : 2);
	return [...files].sort((a, b) => place(a) - place(b) || a.file.localeCompare(b.file));
}

export function named({ source, worker, incarnation, alive, size_bytes }) {
	const whose = worker === null ? source.replaceAll("_", " ") : `${source} ${worker.slice(0, 8)}.${incarnation}${alive ? "" : " (dead)"}`;
	return `${whose}, ${bytes(size_bytes)}`;
}

export function marked(text, wanted) {
	const [all, sought, parts] = [text.toLowerCase(), wanted.toLowerCase(), []];
	let from = 0;
	for (let at = all.indexOf(sought); at >= 0 && sought; at = all.indexOf(sought, from)) {
		parts.push(text.slice(from, at), h("mark", text.slice(at, at + sought.length)));
		from = at + sought.length;
	}
	return [...parts, text.slice(from)];
}
