// The checkpoints of a run with their returns, films and evaluations.

import { query } from "./api.js";
import { evaluate } from "./actions.js";
import { fill, h, say } from "./dom.js";
import { ago, bytes, count, digits, duration, number } from "./format.js";
import { action, badge } from "./parts.js";
import { column, table } from "./table.js";

export async function section(context, about) {
	const { api } = context;
	const { name: run } = about;
	const film = h("figure.card", { hidden: true });
	const others = h("div.row");
	let source = "";
	const play = (train_iter, text) => h("button", { onclick: () => show(train_iter) }, text);
	const offers = (train_iter, one) => h("span.row", one.film && play(train_iter, "Film"), action(context, "evaluate", "Evaluate …", () => evaluate(context, about.run, train_iter)));
	const updates = column("train_iter", "Update", (value) => (Number.isFinite(value) ? count(value) : value), "number");
	const list = table("Checkpoints", [
		updates, column("env_step", "Steps", count, "number"), column("return_mean", "Mean return", number, "number"),
		column("best", "", (best, { last }) => [best && "★ best", last && "last"].filter(Boolean).join(", "), "plain"), column("wall_s", "Time", duration, "number wide"),
		column("file", "File", (file) => h("code", file), "wide"), column("size_bytes", "Size", bytes, "number wide"), column("train_iter", "", offers, "plain"),
	], { key: ({ file }) => file, order: { key: "train_iter", descending: true }, empty: "No checkpoint has been saved yet." });
	const evaluations = table("Evaluations", [
		column("began_s", "Asked for", (began_s) => ago(began_s), "number"), updates, column("episodes", "Episodes", count, "number"), column("state", "State", badge),
		column("return_mean", "Mean return", (mean, { return_std }) => (Number.isFinite(mean) ? `${digits(mean)} ± ${digits(return_std)}` : "–"), "number"),
		column("message", "", (message, { deterministic }) => message ?? (deterministic ? "best actions" : "with exploration"), "long plain"),
	], { key: ({ id }) => id, empty: "Nobody has asked for one." });

	async function load() {
		const answer = await api.get("api/checkpoints", { run });
		list.show(answer.checkpoints);
		evaluations.show(answer.evaluations);
		const gone = answer.films.filter(({ train_iter }) => !answer.checkpoints.some((one) => one.train_iter === train_iter));
		fill(others, gone.length ? "Films of checkpoints that are gone:" : null, gone.map(({ train_iter }) => play(train_iter, `update ${count(train_iter)}`)));
	}

	// It is fetched, since the token goes into a header.
	async function show(train_iter) {
		film.hidden = false;
		const told = h("figcaption", `Update ${count(train_iter)}: the first episode of its evaluation.`);
		fill(film, told);
		try {
			const blob = await (await api.raw(`api/film${query({ run, train_iter })}`)).blob();
			URL.revokeObjectURL(source);
			source = URL.createObjectURL(blob);
			film.append(h("img", { src: source, alt: `Film of an episode after update ${train_iter}` }));
			film.scrollIntoView({ block: "nearest" });
		} catch (error) {
			say(told, error.message);
		}
	}

	await load();
	return {
		element: [film, h("section.card.flush", h("h2", "Checkpoints"), list.element), others, h("section.card.flush", h("h2", "Evaluations that were asked for"), evaluations.element)],
		on: { checkpoints: load, evaluation: (one) => one.run === run && load() },
		close: () => URL.revokeObjectURL(source),
	};
}
