// The page: the open view, the one stream of its news, and messages about a silent server.

import { Api, follow, load, parsed, query, takeToken, tokenIn } from "./api.js";
import { listen, shortcuts } from "./dialog.js";
import { fill, h, say } from "./dom.js";
import { clock, sentence } from "./format.js";
import { step } from "./table.js";

const VIEWS = ["queue", "runs", "herd", "compare", "submit", "run"];
const AGAIN_MS = 2000;
const [main, line, away, said] = ["main", "state", "away", "said"].map((id) => document.getElementById(id));
const context = {
	api: new Api(sessionStorage),
	session: { right: "viewer", live: false, coordinator: "none", actions: [] },
	queue: null,
	go: (to) => (location.hash = to),
	said: (text) => say(said, text),
	// Reason for a missing action, or "".
	why(action) {
		const { right, actions, operator_command } = context.session;
		if (actions.includes(action)) return "";
		if (right === "viewer") return `This link only shows. For a link that allows actions, run: ${operator_command}`;
		return "There is no coordinator here: these are the folders of runs alone.";
	},
};
let [open, turn, stands, away_s, letIn] = [null, 0, true, null, false];

async function show() {
	const route = parsed(location.hash);
	if (!VIEWS.includes(route.view)) {
		history.replaceState(null, "", context.session.live ? "#/queue" : "#/runs");
		return show();
	}
	const mine = ++turn;
	close();
	for (const link of document.querySelectorAll("header nav a")) {
		link.toggleAttribute("aria-current", link.hash === `#/${route.view === "run" ? "runs" : route.view}`);
	}
	try {
		const { view } = await load(`view_${route.view}`);
		const made = await view(context, route);
		if (mine !== turn) return made.close?.();
		open = { on: {}, ...made, abort: new AbortController() };
		document.title = `${made.title} · Remuda`;
		fill(main, made.element);
		scrollTo(0, 0);
		for (const name of VIEWS) load(`view_${name}`).catch(() => null); // so that they open while the server is away, too
		await stream(open);
	} catch (error) {
		if (mine === turn) failed(error);
	}
	return null;
}

function close() {
	open?.abort.abort();
	open?.close?.();
	open = null;
}

async function stream({ on, stream: asked, abort }) {
	const own = {
		hello: ({ session }) => told(session),
		coordinator: (news) => told({ ...context.session, ...news }),
		queue: (queue) => (context.queue = queue),
	};
	await follow(context.api, `api/events${query(asked?.())}`, {
		signal: abort.signal,
		stands(now) {
			stands = now;
			state();
		},
		heard({ event, data }) {
			own[event]?.(data);
			on[event]?.(data);
		},
	});
}

function told(session) {
	const before = JSON.stringify(context.session);
	context.session = session;
	state();
	if (before !== JSON.stringify(session)) open?.on.session?.(session);
}

// Shows the server, or the begin of its silence.
function state() {
	const { live, coordinator, since_s, right, host, version, runs_dir, of_launch } = context.session;
	const silent = !stands || coordinator === "silent";
	if (!silent && away_s !== null) context.said("The coordinator is back.");
	away_s = silent ? (away_s ?? since_s ?? Date.now() / 1000) : null;
	away.hidden = !silent;
	const who = live ? "coordinator" : "page's server";
	const goesOn = of_launch ? `If its run is over: remuda page ${runs_dir}` : "This page shows what was known then, and continues by itself.";
	say(away, silent ? `The ${who} has not answered since ${clock(away_s)}. ${goesOn}` : "");
	line.className = silent ? "bad" : live ? "good" : "still";
	say(line, silent ? "away" : `${live ? "live" : "no coordinator"}${host ? ` on ${host}` : ""}${right === "viewer" ? ", looking only" : ""}`);
	document.querySelector("[href='#/submit']").hidden = right === "viewer";
	line.title = version ? `Remuda ${version}, runs in ${runs_dir}` : "";
}

function failed(error) {
	if (error.status === 401) return asked();
	const text = sentence(error.message);
	if (main.querySelector("[role=alert]")?.textContent !== text) {
		fill(main, h("h1", "This did not work"), h("p.bad", { role: "alert" }, text), h("div.row", h("button.first", { onclick: begin }, "Try again")));
	}
	if (error.status !== 0) return null;
	const mine = turn;
	stands = false;
	state();
	return setTimeout(() => mine === turn && begin(), AGAIN_MS);
}

function asked() {
	close();
	letIn = false;
	document.title = "Remuda";
	line.className = "bad";
	say(line, "not let in");
	fill(main, h("h1", context.api.token ? "This link is not valid any more" : "This page needs its whole link"),
		h("p", { role: "alert" }, "Open the link that the coordinator printed, or the one that remuda page RUNS_DIR --link prints: it ends with #token= and 43 characters."));
}

async function begin() {
	takeToken(location, history, sessionStorage);
	try {
		told(await context.api.get("api/session"));
		letIn = true;
		await show();
	} catch (error) {
		failed(error);
	}
}

function help() {
	if (!document.querySelector("dialog")) shortcuts();
	return true;
}

const go = (to) => () => context.go(to);
const KEYS = {
	"g q": go("#/queue"), "g r": go("#/runs"), "g h": go("#/herd"), "g c": go("#/compare"), n: go("#/submit"), "?": help,
	j: () => step(main, 1), k: () => step(main, -1), "/": () => main.querySelector("input[type=search]")?.focus() ?? true,
	Enter: () => document.activeElement.dataset.link && context.go(document.activeElement.dataset.link), Escape: () => document.activeElement.blur(),
};
listen(document, (keys) => !document.querySelector("dialog") && Boolean((open?.shortcuts?.[keys] ?? KEYS[keys])?.()));
document.getElementById("help").addEventListener("click", help);
document.querySelector(".skip").addEventListener("click", (event) => {
	event.preventDefault();
	main.focus();
});
addEventListener("pageshow", ({ persisted }) => persisted && begin());
addEventListener("hashchange", () => (letIn && !tokenIn(location.hash) ? show() : begin()));
begin();
