// Addresses of views: "#/run/NAME/logs?file=x" and back. Names may hold slashes; they are encoded.

import { query } from "./api.js";

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
