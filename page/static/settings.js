// Settings of configs: as text, and those that somebody looks for.

export const written = (value) => (typeof value === "string" ? value : JSON.stringify(value ?? null));

// `settings` as /api/config has them; those with the text, and, if so asked, only those that differ.
export function matching(settings, text, differing) {
	const wanted = text.trim().toLowerCase();
	return settings.filter((one) => (!differing || one.differs) && `${one.key} ${one.values.map(written).join(" ")}`.toLowerCase().includes(wanted));
}
