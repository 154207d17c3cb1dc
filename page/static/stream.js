// The stream of events: read with fetch, since it needs a header, and opened again while the page is open. A page that is
// hidden has none: a browser allows six connections to a server.

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

// Read events until `signal` is aborted; `stands(bool)` is told whether the stream does. Throws a Refusal that is final.
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

// One connection: null once it stands, then its events. It ends when nothing was heard for too long.
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
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		const parser = new Parser();
		for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
			listen();
			yield* parser.feed(piece.value);
		}
	} finally {
		clearTimeout(timer);
		document.removeEventListener("visibilitychange", leave);
	}
}
