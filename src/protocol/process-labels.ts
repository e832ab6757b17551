import { checkedString, DecodeError, map, type Schema, string } from "./schema.ts";

/** Name and labels of a process, as its starter chooses them. */

const NAME_PATTERN = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const LABEL_KEY_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
/** Maximum labels of a process. A listing repeats all of them, so they must stay few and short. */
export const MAX_LABELS = 32;
/** Maximum length of a label value in UTF-16 units. */
export const MAX_LABEL_VALUE_LENGTH = 256;

/** Throws a DecodeError if the text is not a valid process name. */
function checkName(text: string): void {
  if (!NAME_PATTERN.test(text))
    throw new DecodeError(
      `invalid name \`${text.slice(0, 100)}\`: expected 1 to 63 characters of a-z, 0-9, \`.\`, \`_\` and \`-\`, the first one a letter or a digit`,
    );
}

function checkLabels(labels: Readonly<Record<string, string>>): void {
  const entries = Object.entries(labels);
  if (entries.length > MAX_LABELS)
    throw new DecodeError(`too many labels: ${entries.length}, expected at most ${MAX_LABELS}`);
  for (const [key, value] of entries) {
    if (!LABEL_KEY_PATTERN.test(key))
      throw new DecodeError(
        `invalid label key \`${key.slice(0, 100)}\`: expected 1 to 63 characters of A-Z, a-z, 0-9, \`.\`, \`_\`, \`/\` and \`-\`, the first one a letter or a digit`,
      );
    if (value.length > MAX_LABEL_VALUE_LENGTH)
      throw new DecodeError(
        `label \`${key}\` is too long: ${value.length} characters, expected at most ${MAX_LABEL_VALUE_LENGTH}`,
      );
    if (/\p{Cc}/u.test(value)) throw new DecodeError(`label \`${key}\` contains a control character`);
  }
}

/** Name of a process. Unique among the live processes of a principal. */
export const processName: Schema<string> = checkedString("process name", checkName);

const stringMap = map(string);

/** Labels in a result, unchecked. An ordinary object, so that callers can compare it. */
export const listedLabels: Schema<Record<string, string>> = {
  ...stringMap,
  decode: (value) => ({ ...stringMap.decode(value) }),
};

/** Labels of a process: at most 32, for filters of `procwire ps` and other lists. */
export const processLabels: Schema<Record<string, string>> = {
  ...listedLabels,
  decode: (value) => {
    const labels = listedLabels.decode(value);
    checkLabels(labels);
    return labels;
  },
};
