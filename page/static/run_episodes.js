// The recorded training episodes of a run, the worst first; and one of them, played again, step by step.

import { runAddress } from "./api.js";
import { fact, fill, h, say } from "./dom.js";
import { brief, count, NONE, number, plural, sentence, share } from "./format.js";
import { column, table } from "./table.js";

export async function section(context, { name: run }, route) {
	const why = context.why("replay");
	if (why) return { element: h("p.quiet", why) };
	const abort = new AbortController();
	const told = h("p.quiet", { role: "status" });
	const episode = route.query.get("episode");
	const shown = episode ? one(run, episode, Number(route.query.get("step"))) : list(run);

	// The server plays the episode in a process; leaving the view or the page ends it.
	addEventListener("pagehide", () => abort.abort(), { signal: abort.signal });
	async function read() {
		try {
			for await (const line of context.api.lines("api/replay", { run, episode }, abort.signal)) {
				if (line.error) throw new Error(sentence(line.error));
				const text = shown.take(line);
				if (text) say(told, text);
			}
		} catch (error) {
			if (abort.signal.aborted) return;
			told.className = "bad";
			say(told, error.message);
		}
	}

	say(told, episode ? "The episode is being looked for …" : "The record is being read …");
	read();
	return { ...shown, element: [told, shown.element], close: () => abort.abort() };
}

const versions = ([first, last]) => (first === last ? count(first) : `${count(first)} to ${count(last)}`);

function list(run) {
	const address = ({ id }) => runAddress(run, "episodes", { episode: id });
	const episodes = table("Episodes", [
		column("id", "Episode", (id) => h("a", { href: address({ id }) }, id), "name"), column("return_mean", "Return", number, "number"),
		column("length", "Steps", count, "number"), column("versions", "Policy version", versions, "number plain"),
	], { key: ({ id }) => id, link: address, order: { key: "return_mean", descending: false }, empty: "No episode has ended yet." });
	const { element } = episodes;
	element.hidden = true;
	return { element, take({ episodes: found, counted, notes }) {
		element.hidden = false;
		episodes.show(found);
		return `${plural(counted, "episode")}, the worst first${found.length < counted ? `; the worst and the best ${count(found.length)} are shown` : ""}. Choose one to see each step. ${notes.map(sentence).join(" ")}`;
	} };
}

const numbers = (value) => (Array.isArray(value) ? `[${value.map(numbers).join(", ")}]` : brief(value));

function one(run, episode, wanted) {
	const steps = [];
	const image = h("img", { alt: "" });
	const film = h("figure", { hidden: true }, image);
	const facts = h("dl.facts");
	const seen = h("dl");
	const place = h("output");
	const slider = h("input.grow", { type: "range", min: "0", max: "0", value: "0", "aria-label": "Step", oninput: () => show(Number(slider.value)) });
	const button = (text, label, by) => h("button", { "aria-label": label, title: label, onclick: () => show(at + by) }, text);
	const element = h("section.card.episode", { hidden: true }, h("div.row", h("h2.grow", `Episode ${episode}`), h("a", { href: runAddress(run, "episodes") }, "all episodes")),
		h("div.row.player", button("◀", "Step back", -1), slider, button("▶", "Step forward", 1), place), h("div.cards", film, h("div", facts, seen)));
	let [at, timer] = [0, 0];
	const tell = () => say(place, `step ${count(at)} of ${count(steps.length - 1)}`);

	function show(to) {
		at = Math.min(Math.max(to, 0), steps.length - 1);
		const { actions, rewards, returns, observations, policy_version: version, picture } = steps[at];
		[slider.value, film.hidden] = [String(at), !picture];
		tell();
		if (picture) [image.src, image.alt] = [`data:image/png;base64,${picture}`, `The environment after step ${at}`];
		const agents = Object.keys(observations);
		const called = (what, agent) => (agents.length > 1 ? `${what} of ${agent}` : what);
		const each = (what, values) => agents.map((agent) => fact(called(what, agent), agent in values ? numbers(values[agent]) : NONE));
		fill(facts, each("Action", actions), each("Reward", rewards), each("Return so far", returns), fact("Policy version", count(version)));
		fill(seen, agents.map((agent) => [h("dt", `${called("Observation", agent)} after the ${at ? "step" : "reset"}`), h("dd", h("code", numbers(observations[agent])))]));
		clearTimeout(timer); // browsers refuse many changes of the address
		timer = setTimeout(() => element.isConnected && history.replaceState(null, "", location.pathname + runAddress(run, "episodes", { episode, step: at || null })), 200);
		return true;
	}

	return {
		element,
		shortcuts: { ArrowLeft: () => steps.length && show(at - 1), ArrowRight: () => steps.length && show(at + 1) },
		take(line) {
			if (line.of) return steps.length ? "" : `Its copy of the environment is played up to it: ${share(line.played / line.of)}.`;
			if (line.difference) throw new Error(`It is not the recorded episode. ${sentence(line.difference)}`);
			if (!("number" in line)) return `${plural(steps.length - 1, "step")}, equal to the record to the last bit. Step with ← and →.`;
			const before = steps.at(-1)?.returns;
			steps.push({ ...line, returns: Object.fromEntries(Object.keys(line.observations).map((agent) => [agent, (before?.[agent] ?? 0) + (line.rewards[agent] ?? 0)])) });
			slider.max = String(steps.length - 1);
			element.hidden = false;
			tell();
			if (steps.length === 1 || (at === 0 && steps.length - 1 === wanted)) show(steps.length - 1);
			return steps.length === 1 && "Its steps are played …";
		},
	};
}
