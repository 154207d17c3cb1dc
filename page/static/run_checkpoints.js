// The checkpoints of a run with their returns, films and evaluations.

import { evaluate } from "./actions.js";
import { query } from "./api.js";
import { action, badge, fill, h, say } from "./dom.js";
import { ago, bytes, count, duration, number, spread } from "./format.js";
import { column, table } from "./table.js";

export async function section(context, about) {
	const { api } = context;
	const { name: run, one: its } = about;
	const film = h("figure.card", { hidden: true });
	let source = "";
	const offers = (train_iter, { film: filmed, file }) => h("span.row", filmed && h("button", { onclick: () => show(train_iter) }, "Film"),
		file && !about.policies.length && action(context, "evaluate", "Evaluate …", () => evaluate(context, about.run, train_iter)));
	const updates = column("train_iter", "Update", (value) => (Number.isFinite(value) ? count(value) : value), "number");
	const list = table("Checkpoints", [
		updates, column("env_step", "Steps", count, "number"), column("reward", "Mean return", number, "number"),
		column("best", "", (best, { last }) => [best && "★ best", last && "last"].filter(Boolean).join(", "), "plain"), column("wall_s", "Time", duration, "number wide"),
		column("file", "File", (file) => (file ? h("code", file) : "removed"), "wide"), column("size_bytes", "Size", bytes, "number wide"), column("train_iter", "", offers, "title plain"),
	], { key: ({ train_iter, file }) => file ?? train_iter, order: { key: "train_iter", descending: true }, empty: "No checkpoint has been saved yet.", headed: true });
	const evaluations = table("Evaluations that were asked for", [
		column("began_s", "Asked for", (began_s) => ago(began_s), "number"), updates, column("episodes", "Episodes", count, "number"), column("state", "State", badge, "bare"),
		column("return_mean", "Mean return", (mean, { return_std }) => spread(mean, return_std), "number"),
		column("message", "", (message, { deterministic }) => message ?? (deterministic ? "best actions" : "with exploration"), "long plain"),
	], { key: ({ id }) => id, empty: "Nobody has asked for one.", headed: true });

	async function load() {
		const answer = await api.get("api/checkpoints", { run: its });
		const gone = answer.films.filter(({ train_iter }) => !answer.checkpoints.some((one) => one.train_iter === train_iter));
		list.show([...answer.checkpoints, ...gone.map(({ train_iter }) => ({ train_iter, film: true }))]);
		evaluations.show(answer.evaluations);
	}

	// Fetched, since the token belongs in a header.
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
		element: [film, list.element, evaluations.element],
		on: { checkpoints: load, evaluation: (one) => one.run === run && load() },
		close: () => URL.revokeObjectURL(source),
	};
}
