// Numbers, times and sizes for people. Missing and infinite values are shown as "–".

export const NONE = "–";
const known = Number.isFinite;
const english = new Intl.NumberFormat("en", { maximumFractionDigits: 20 });
const two = (value) => String(value).padStart(2, "0");

// 1234567 → "1,234,567", in every language of a browser, as in the logs.
export const count = (value) => (known(value) ? english.format(value).replace("-", "−") : NONE);

// With at most this many significant digits, without zeros at the end.
export function digits(value, most = 4) {
	if (!known(value) || value === 0) return count(value);
	const size = Math.abs(value);
	if (size >= 1e15 || size < 1e-4) return value.toExponential(most - 1).replaceAll("-", "−");
	const whole = Math.floor(Math.log10(size)) + 1;
	return count(Number(value.toFixed(Math.max(most - whole, 0))));
}

export const number = (value) => digits(value);

export const spread = (mean, std) => digits(mean) + (known(std) ? ` ± ${digits(std)}` : "");

// 1234567 → "1.23 M", for axes.
export function short(value) {
	const size = Math.abs(value);
	if (!(known(value) && size >= 1e4)) return digits(value);
	const [of, unit] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([from]) => size >= from);
	return `${digits(value / of, 3)} ${unit}`;
}

export const rate = (value) => (known(value) ? `${value < 10 ? digits(value, 2) : count(Math.round(value))}/s` : NONE);

export function share(value) {
	if (!known(value)) return NONE;
	return value > 0 && value < 0.005 ? "< 1 %" : `${Math.round(100 * value)} %`;
}

export function bytes(value) {
	if (!known(value)) return NONE;
	const power = Math.min(Math.max(Math.floor(Math.log2(Math.abs(value) || 1) / 10), 0), 4);
	return `${digits(value / 1024 ** power, 3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// 3723 → "1:02:03"; from a day on "2 d 3:04 h".
export function duration(seconds) {
	if (!known(seconds)) return NONE;
	const s = Math.max(0, Math.floor(seconds));
	const [d, hour, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
	if (d) return `${d} d ${hour}:${two(m)} h`;
	return hour ? `${hour}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

export function age(seconds) {
	if (!known(seconds)) return NONE;
	for (const [most, of, unit] of [[100, 1, "s"], [6000, 60, "min"], [172800, 3600, "h"]]) {
		if (seconds < most) return `${Math.max(Math.round(seconds / of), 0)} ${unit}`;
	}
	return `${Math.round(seconds / 86400)} days`;
}

export const ago = (time_s, now_s = Date.now() / 1000) => (known(time_s) ? `${age(now_s - time_s)} ago` : NONE);

const local = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

// The local time of day, with the date for another day than `now_s`.
export function clock(time_s, now_s = Date.now() / 1000) {
	if (!known(time_s)) return NONE;
	const [then, now] = [time_s, now_s].map((each) => local.format(1000 * each));
	return then.slice(0, 10) === now.slice(0, 10) ? then.slice(11) : then;
}

export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

export const list = (words) => new Intl.ListFormat("en-GB").format(words);

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// With a capital and a point; names, such as env.make, stay.
export const sentence = (text) => `${text.trim().replace(/^\w+ /, capital).replace(/[.\s]*$/, "")}.`;

export const written = (value) => (typeof value === "string" ? value : JSON.stringify(value ?? null));

export const brief = (value) => (typeof value === "number" ? digits(value) : written(value));
