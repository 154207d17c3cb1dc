// A new experiment: its config is checked as it is typed, and what is wrong is said at its line.

import { runAddress } from "./api.js";
import { choose, field, settingsIn } from "./dialog.js";
import { fill, h, ofLaunch, say } from "./dom.js";
import { plural } from "./format.js";

const AFTER_MS = 250;
const EXISTS = [["error", "refuse"], ["resume", "resume: continue the run"], ["rename", "rename: add a date to the name"], ["force", "force: start over"]];

const title = "Submit an experiment";
export async function view(context) {
	const { api, go, said, session, why } = context;
	const not = why("submit");
	if (session.right === "viewer") return { title, element: [h("h1", title), h("p", not)] };
	const { examples } = await api.get("api/examples").catch(() => ({ examples: [] }));
	const numbers = h("ol", { "aria-hidden": "true" });
	const text = h("textarea", { spellcheck: "false", autocapitalize: "off", wrap: "off", rows: "24", "aria-label": "Config (YAML)", "aria-describedby": "problems", oninput: () => typed() });
	const told = h("p", { role: "status" });
	const problems = h("ul.errors", { id: "problems" });
	const name = h("input", { placeholder: "the name in the config", autocomplete: "off" });
	const priority = h("input", { type: "number", step: "1", value: "0" });
	const exists = choose(h("select"), EXISTS, "error");
	const set = h("textarea", { rows: "2", spellcheck: "false", placeholder: "seed=1", oninput: () => typed() });
	const send = h("button.first", { disabled: Boolean(not), title: not || null }, "Submit");
	const example = choose(h("select", { onchange: () => begin() }), [["", "an empty text"], ...examples.map((one) => [one.name, one.name])], "");
	let [timer, checking, wrongLines] = [0, null, new Set()];

	function number() {
		fill(numbers, text.value.split("\n").map((_, at) => h(wrongLines.has(at + 1) ? "li.wrong" : "li", String(at + 1))));
		numbers.scrollTop = text.scrollTop;
	}

	function show(found) {
		wrongLines = new Set(found.map(({ line }) => line));
		number();
		fill(problems, found.map(({ line, message }) => h("li.bad", line ? h("button", { type: "button", onclick: () => select(line) }, `Line ${line}`) : null, message)));
		text.setAttribute("aria-invalid", found.length > 0);
	}

	function select(line) {
		const rows = text.value.split("\n");
		const from = rows.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
		text.focus();
		text.setSelectionRange(from, from + rows[line - 1].length);
		text.scrollTop = (line - 6) * (text.scrollHeight / rows.length);
	}

	function begin() {
		text.value = examples.find((one) => one.name === example.value)?.text ?? "";
		typed();
	}

	function typed() {
		number();
		clearTimeout(timer);
		timer = setTimeout(check, AFTER_MS);
	}

	function tell(tone, words) {
		told.className = tone;
		say(told, words);
	}

	async function check() {
		checking?.abort();
		checking = new AbortController();
		const { signal } = checking;
		if (not || !text.value.trim()) return show([]);
		try {
			const answer = await api.post("api/config/check", { text: text.value, set: settingsIn(set.value) }, signal);
			show(answer.problems);
			return tell(answer.valid ? "good" : "bad", answer.valid ? `This config has no problems: ${answer.name}.` : `${plural(answer.problems.length, "problem")}:`);
		} catch (error) {
			return signal.aborted ? null : tell("bad", error.message);
		}
	}

	async function submit(event) {
		event.preventDefault();
		send.disabled = true;
		clearTimeout(timer);
		checking?.abort();
		tell("", "The environment is built once, to see that it works. This takes some seconds …");
		try {
			const body = { text: text.value, set: settingsIn(set.value), name: name.value.trim() || null, priority: Number(priority.value), on_exists: exists.value };
			const { run } = await api.post("api/submit", body);
			said("Submitted.");
			go(runAddress(run));
		} catch (error) {
			tell("bad", error.message);
			show(error.problems ?? []);
			send.disabled = false;
		}
	}

	text.addEventListener("scroll", () => (numbers.scrollTop = text.scrollTop));
	text.addEventListener("keydown", ({ key, ctrlKey }) => key === "Enter" && ctrlKey && form.requestSubmit(send));
	const form = h("form", { onsubmit: submit }, h("p", h("label", "Begin with ", example)), h("div.editor", numbers, text), told, problems,
		h("div.cards", field("Name", name), field("Priority", priority, "higher goes first"), field("If its run folder exists", exists), field("Other settings, one per line", set)),
		h("div.row", send, h("span.quiet", not || "Ctrl-Enter submits, too.")));
	number();
	return {
		title,
		element: [h("h1", title), ofLaunch(context), form],
		close() {
			clearTimeout(timer);
			checking?.abort();
		},
	};
}
