// Requests to the page's server with the token of the link, and addresses of views.
// The stream of events is read with fetch, since it needs a header, and reopened while the page is open. A hidden page has
// no stream: a browser allows six connections to a server.

const KEPT = "remuda.token";

// A refusal by the server: `status` of HTTP, 0 without an answer; a message, and the problems of a config.
export class Refusal extends Error {
	constructor(status, { message, problems = [] } = {}) {
		super(message || `The page's server answered ${status}.`);
		Object.assign(this, { status, problems });
	}
}

const silent = () => new Refusal(0, { message: "The page's server does not answer." });

// Loads a module of the page, possibly while the server is silent.
export const load = (name) => import(`./${name}.js`).catch((error) => {
	throw error instanceof TypeError ? silent() : error;
});

// The token in a fragment, or "".
export const tokenIn = (text) => /[#&?]token=([\w-]+)/.exec(text)?.[1] ?? "";

// Moves the token from the address, where it might be copied, into the storage of this tab.
export function takeToken(place, history, store) {
	const token = tokenIn(place.hash);
	if (!token) return;
	store.setItem(KEPT, token);
	const view = place.hash.replace(/[#&?]token=[\w-]+/, "").replace(/^[#&]?/, "#");
	history.replaceState(null, "", place.pathname + view);
}

// {run: ["a", "b"], y: "x", none: null} → "?run=a&run=b&y=x"
export function query(parameters = {}) {
	const told = Object.entries(parameters ?? {}).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
	const text = new URLSearchParams(told.filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
	return text && `?${text}`;
}

export class Api {
	constructor(store) {
		this.store = store;
	}

	get token() {
		return this.store.getItem(KEPT) ?? "";
	}

	// Returns the raw answer. Throws a Refusal or an AbortError.
	async raw(path, { headers, ...options } = {}) {
		const answer = await fetch(path, { cache: "no-store", ...options, headers: { Authorization: `Bearer ${this.token}`, ...headers } }).catch((error) => {
			throw error.name === "AbortError" ? error : silent();
		});
		if (answer.ok) return answer;
		throw new Refusal(answer.status, (await answer.json().catch(() => ({}))).error);
	}

	async get(path, parameters, signal) {
		return (await this.raw(path + query(parameters), { signal })).json();
	}

	async post(path, body, signal) {
		return (await this.sent(path, body, signal)).json();
	}

	// Objects, one in each line of the answer, as they come.
	async *lines(path, body, signal) {
		let rest = "";
		for await (const piece of pieces(await this.sent(path, body, signal))) {
			const lines = (rest + piece).split("\n");
			rest = lines.pop();
			yield* lines.map((line) => JSON.parse(line));
		}
	}

	sent(path, body, signal) {
		return this.raw(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });
	}
}

async function* pieces(answer) {
	const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
	for (let piece = await reader.read(); !piece.done; piece = await reader.read()) yield piece.value;
}

// "#/run/NAME/logs?file=x" and back. Names may hold slashes; they are encoded.
export function parsed(hash) {
	const [path, asked = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
	const [view, ...parts] = path.split("/").map(decoded);
	return { view, parts, query: new URLSearchParams(asked) };
}

function decoded(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

export const address = (parts, asked) => `#/${parts.map(encodeURIComponent).join("/")}${query(asked)}`;
export const runAddress = (run, part = "", asked = {}) => address(part ? ["run", run, part] : ["run", run], asked);

const FINAL = [400, 401, 403, 404];

// Turns pieces of a stream, which may end anywhere, into events: {id, event, data}, data from JSON.
export class Parser {
	rest = "";

	feed(piece) {
		const blocks = (this.rest + piece).split("\n\n");
		this.rest = blocks.pop();
		return blocks.map((block) => {
			const lines = [...block.matchAll(/^(id|event|data): ?(.*)$/gm)].map(([, name, value]) => [name, value]);
			return { id: null, ...Object.fromEntries(lines) };
		}).filter(({ data }) => data).map((event) => ({ ...event, data: JSON.parse(event.data) }));
	}
}

export const pause = (failures) => Math.min(500 * 2 ** (failures - 1), 5000);

// Reads events until `signal` is aborted; `stands(bool)` receives the state of the connection. Throws a final Refusal.
export async function follow(api, address, { heard, stands, signal, silence_ms = 45000 }) {
	let [last, failures] = [null, 0];
	while (!signal.aborted) {
		while (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
		try {
			for await (const event of connection(api, address, last, signal, silence_ms)) {
				if (!event) stands(true);
				else {
					last = event.id ?? last;
					heard(event);
				}
				failures = 0;
			}
		} catch (error) {
			if (FINAL.includes(error.status)) throw error;
		}
		if (signal.aborted || document.hidden) continue;
		stands(false);
		await new Promise((resolve) => setTimeout(resolve, pause(++failures)));
	}
}

// A connection: yields null once open, then events. Ends after a long silence.
async function* connection(api, address, last, signal, silence_ms) {
	const silent = new AbortController();
	let timer = 0;
	const leave = () => silent.abort();
	const listen = () => {
		clearTimeout(timer);
		timer = setTimeout(leave, silence_ms);
	};
	listen();
	document.addEventListener("visibilitychange", leave);
	try {
		const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
		const answer = await api.raw(address, { headers, signal: AbortSignal.any([signal, silent.signal]) });
		yield null;
		const parser = new Parser();
		for await (const piece of pieces(answer)) {
			listen();
			yield* parser.feed(piece);
		}
	} finally {
		clearTimeout(timer);
		document.removeEventListener("visibilitychange", leave);
	}
}
