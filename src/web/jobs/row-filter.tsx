import { useEffect, useRef, useState } from "preact/hooks";
import type { RowListing, RowsQuery } from "../../protocol/console/console-job-schemas.ts";
import { FAILURE_NAMES } from "../app/job-state.ts";
import { TextField } from "../components/text-field.tsx";

/** Debounce time of the filter input. */
const DEBOUNCE_MS = 250;
const STATUSES = ["pending", "running", "completed", "failed"] as const;

export type Filter = Pick<RowsQuery, "statuses" | "errorClasses" | "text">;

/** Choice of status, failure and text. Calls `onFilter` a moment after the last change. */
export function RowFilter({
  classes,
  onFilter,
}: {
  classes: readonly NonNullable<RowListing["errorClass"]>[];
  onFilter: (filter: Filter) => void;
}) {
  const [status, setStatus] = useState("");
  const [errorClass, setClass] = useState("");
  const [text, setText] = useState("");
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    const timer = setTimeout(() => {
      const statuses = STATUSES.filter((known) => known === status);
      const errorClasses = classes.filter((known) => known === errorClass);
      onFilter({
        statuses: statuses.length > 0 ? statuses : undefined,
        errorClasses: errorClasses.length > 0 ? errorClasses : undefined,
        text: text === "" ? undefined : text,
      });
    }, DEBOUNCE_MS);
    return () => clearTimeout(timer);
    // `classes` is new after every poll; a change of it alone needs no new request.
  }, [status, errorClass, text]);
  return (
    <form class="filter" onSubmit={(event) => event.preventDefault()}>
      <h2 id="rows-title">Rows</h2>
      <Choice label="Status" value={status} values={STATUSES.map((name) => [name, name])} onValue={setStatus} />
      {classes.length > 0 && (
        <Choice
          label="Failure"
          value={errorClass}
          values={classes.map((name) => [name, FAILURE_NAMES[name]])}
          onValue={setClass}
        />
      )}
      <TextField type="search" placeholder="Search cells, results and errors" value={text} onValue={setText}>
        Text
      </TextField>
    </form>
  );
}

function Choice({
  label,
  value,
  values,
  onValue,
}: {
  label: string;
  value: string;
  values: readonly (readonly [value: string, name: string])[];
  onValue: (value: string) => void;
}) {
  return (
    <label class="choice">
      {label}
      <select value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        <option value="">all</option>
        {values.map(([known, name]) => (
          <option key={known} value={known}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
