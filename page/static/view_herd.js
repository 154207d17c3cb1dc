// The herd: hosts, workers with what they do and use, and what failed last.

import { runAddress } from "./api.js";
import { badge, fact, fill, h, runLink, say, search } from "./dom.js";
import { age, bytes, clock, count, digits, duration, plural, share } from "./format.js";
import { column, table } from "./table.js";

const MOST = 300;
const FAILURES_MS = 15000;
const said = (one) => (counts) => Object.entries(counts).map(([what, many]) => one(many, what)).join(", ");
const of = (part, whole) => `${part} of ${whole}`;

export async function view(context) {
	const workers = new Map();
	let [coordinator, hosts] = [null, []];
	const facts = h("dl.facts.card", { hidden: true });
	const head = h("p.quiet");
	const sought = search("UUID, role, host, state, run", () => show());
	const run = column("run", "Run", (name) => runLink(name));
	const again = (key) => column(key, "Started again", count, "number");
	const ofHosts = table("Hosts", [
		column("host", "Host", undefined, "name"), column("workers", "Workers", count, "number"), column("roles", "Roles", said(plural), "long plain"),
		column("states", "States", said((many, state) => `${count(many)} ${state}`), "long plain"), column("cpu_cores", "Cores used", (used, { cpus }) => of(digits(used, 3), cpus || "?"), "number"),
		column("rss_bytes", "Memory", (used, host) => of(bytes(used), bytes(host.memory_bytes || null)), "number"), again("restarts"),
	], { key: ({ host }) => host, empty: "No host has a worker.", headed: true });
	const ofWorkers = table("Workers", [
		column("uuid", "Worker", (uuid, { incarnation }) => h("code", { title: uuid }, `${uuid.slice(0, 8)}.${incarnation}`), "name"),
		column("state", "State", badge, "bare"), column("role", "Role"),
		column("activity", "Does", (activity, { waits_for }) => h(waits_for ? "span.wait" : "span", activity || "–")), run,
		column("host", "Host", undefined, "wide"), column("pid", "Process", String, "number wide"), column("cpu_cores", "Cores", (used) => digits(used, 2), "number"),
		column("work_share", "Busy", share, "number"), column("rss_bytes", "Memory", bytes, "number"),
		column("beat_age_s", "Heard", (seconds) => `${age(seconds)} ago`, "number wide"), again("restarts"),
	], { key: ({ uuid }) => uuid, link: ({ run: name }) => name && runAddress(name), order: { key: "role" }, empty: "There is no such worker." });
	const ofFailures = table("Failures", [column("time_s", "When", (time_s) => clock(time_s), "number"), run, column("text", "What", undefined, "long")],
		{ key: (one) => `${one.time_s} ${one.worker} ${one.text}`, empty: "Nothing has failed.", headed: true });

	function show() {
		const all = [...workers.values()];
		const found = all.filter(({ uuid, role, host, state, run: name, activity }) => sought.has(uuid, role, host, state, name, activity));
		const wrong = ({ state, restarts }) => (state === "stuck" || state === "lost" ? 1e9 : restarts);
		if (found.length > MOST) found.sort((a, b) => wrong(b) - wrong(a));
		say(head, `${plural(found.length, "worker")}${found.length > MOST ? `; ${MOST} of them are shown: search for others` : ""}.`);
		ofWorkers.show(found.slice(0, MOST));
		ofHosts.show(hosts);
		facts.hidden = !coordinator;
		if (!coordinator) return;
		const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);
		const are = (state) => count(all.filter((worker) => worker.state === state).length);
		const refused = Object.values(coordinator.refusals ?? {}).reduce((a, b) => a + b, 0);
		fill(facts, fact("Workers", count(all.length), `on ${plural(hosts.length, "host")}`), fact("Busy", are("busy"), `${are("idle")} free`),
			fact("Cores used", digits(sum(all, "cpu_cores"), 3), `of ${sum(hosts, "cpus")}`), fact("Memory", bytes(sum(all, "rss_bytes"))),
			fact("Started again", count(sum(all, "restarts")), "times"), fact("Coordinator up", duration(coordinator.uptime_s), `process ${coordinator.pid}`),
			fact("Longest turn", `${digits(1000 * coordinator.load.longest_turn_s, 3)} ms`, "in the last minute"), fact("Refused", count(refused), "messages"));
	}

	function take(news) {
		if (news.all) workers.clear();
		for (const worker of news.workers) workers.set(worker.uuid, worker);
		for (const uuid of news.gone) workers.delete(uuid);
		({ coordinator, hosts } = news);
		show();
	}

	async function failures() {
		const herd = context.session.live && (await context.api.get("api/herd").catch(() => null));
		if (herd) ofFailures.show(herd.failures);
		else if (!coordinator) say(head, context.session.live ? "The coordinator does not answer." : "There is no coordinator here, so there is no herd.");
	}

	failures();
	const timer = setInterval(failures, FAILURES_MS);
	return {
		title: "Herd",
		element: [h("h1", "Herd"), facts, ofHosts.element, h("div.row", h("h2", "Workers"), sought.element), head, ofWorkers.element, ofFailures.element],
		stream: () => ({ herd: 1 }),
		on: { herd: take },
		close: () => clearInterval(timer),
	};
}
