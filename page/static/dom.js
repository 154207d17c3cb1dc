// Elements from values. Text is only ever set as text, so it cannot become markup.

// h("p.note", {id: "x", onclick: f}, "text", child, [children], null)
export function h(what, ...parts) {
	const [name, ...classes] = what.split(".");
	const made = document.createElement(name);
	if (classes.length) made.className = classes.join(" ");
	return filled(made, parts);
}

export const svg = (name, ...parts) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), parts);

function filled(made, parts) {
	for (const part of parts) {
		if (part?.constructor === Object) for (const [key, value] of Object.entries(part)) set(made, key, value);
		else append(made, part);
	}
	return made;
}

function append(parent, part) {
	if (Array.isArray(part)) part.forEach((each) => append(parent, each));
	else if (part !== null && part !== undefined && part !== false) parent.append(part);
}

// `on…` is a listener; styles are set one by one, which a strict policy for content allows.
function set(made, key, value) {
	if (value === null || value === undefined || value === false) return;
	if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
	else if (key === "style") for (const [name, each] of Object.entries(value)) made.style.setProperty(name, each);
	else if (key === "value" || key === "checked") made[key] = value;
	else made.setAttribute(key, value === true ? "" : value);
}

export function fill(parent, ...children) {
	parent.replaceChildren();
	append(parent, children);
	return parent;
}

export function say(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

export function keep(parent, rows, key, make, update) {
	const names = new Set(rows.map((row) => String(key(row))));
	const former = new Map();
	for (const child of [...parent.children]) {
		if (names.has(child.dataset.key)) former.set(child.dataset.key, child);
		else child.remove();
	}
	let before = parent.firstElementChild;
	for (const row of rows) {
		const name = String(key(row));
		const element = former.get(name) ?? make(row);
		element.dataset.key = name;
		update(element, row);
		if (element === before) before = before.nextElementSibling;
		else parent.insertBefore(element, before);
	}
}
