// Requests to the page's server with the token of the link, and addresses of views.

const KEPT = "remuda.token";

// The server says no: `status` of HTTP, 0 without an answer; a sentence, and the problems of a config.
export class Refusal extends Error {
	constructor(status, { message, problems = [] } = {}) {
		super(message || `The page's server answered ${status}.`);
		Object.assign(this, { status, problems });
	}
}

const silent = () => new Refusal(0, { message: "The page's server does not answer." });

// A module of the page, which may be asked for while nobody answers.
export const load = (name) => import(`./${name}.js`).catch((error) => {
	throw error instanceof TypeError ? silent() : error;
});

// The token in a fragment; "" if there is none.
export const tokenIn = (text) => /[#&?]token=([\w-]+)/.exec(text)?.[1] ?? "";

// Take the token out of the address, so that nobody copies it, and keep it for this tab.
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

	// The answer as it is. Throws a Refusal or an AbortError.
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
		return (await this.raw(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal })).json();
	}
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
