import { InputError, type Row } from "../job.ts";

/** An instruction with its `{column}` placeholders parsed. */
export interface Template {
  /** The columns in the instruction, without duplicates. */
  readonly columns: readonly string[];
  /** The text before the first placeholder, the same for every row. */
  readonly fixedStart: string;
  /** Inserts a row's values. Inserted values are not expanded again, so a cell that holds `{x}` stays `{x}`. */
  render(row: Row): string;
}

/**
 * Parses an instruction. `{{` and `}}` are literal braces. `{name}` is the value of the column with exactly that name,
 * including spaces. A single `}` is literal.
 */
export function parseTemplate(instruction: string): Template {
  if (instruction.trim() === "") throw new InputError("the instruction is empty; describe what to do with each row");
  const parts: Part[] = [];
  let literal = "";
  for (let at = 0; at < instruction.length; ) {
    const char = instruction[at];
    if ((char === "{" || char === "}") && instruction[at + 1] === char) {
      literal += char;
      at += 2;
    } else if (char === "{") {
      const end = instruction.indexOf("}", at + 1);
      if (end === -1) {
        throw new InputError(
          `the instruction opens a placeholder at ${JSON.stringify(instruction.slice(at, at + 20))} and never closes it; write {{ for a brace`,
        );
      }
      parts.push({ type: "text", text: literal }, { type: "column", name: instruction.slice(at + 1, end) });
      literal = "";
      at = end + 1;
    } else {
      literal += char;
      at += 1;
    }
  }
  parts.push({ type: "text", text: literal });
  const [first] = parts;
  return {
    fixedStart: first?.type === "text" ? first.text : "",
    columns: [...new Set(parts.flatMap((part) => (part.type === "column" ? [part.name] : [])))],
    render: (row) => parts.map((part) => (part.type === "text" ? part.text : valueText(row, part.name))).join(""),
  };
}

/** Throws if the template names a column that the table does not have. */
export function checkColumns(template: Template, headers: readonly string[]): void {
  const unknown = template.columns.find((column) => !headers.includes(column));
  if (unknown === undefined) return;
  throw new InputError(
    `unknown placeholder {${unknown}} in the instruction; the columns are ${headers.join(", ") || "none"}; write {{ and }} for braces`,
  );
}

type Part = { type: "text"; text: string } | { type: "column"; name: string };

function valueText(row: Row, column: string): string {
  const value = Object.hasOwn(row, column) ? row[column] : undefined;
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
