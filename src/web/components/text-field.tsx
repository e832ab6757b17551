import type { ComponentChildren, InputHTMLAttributes } from "preact";

type TextFieldProps = InputHTMLAttributes<HTMLInputElement> & {
  /** The label. */
  children: ComponentChildren;
  onValue: (value: string) => void;
};

/** A text input with its label. */
export function TextField({ children, onValue, ...input }: TextFieldProps) {
  return (
    <label>
      {children}
      <input {...input} onInput={(event) => onValue(event.currentTarget.value)} />
    </label>
  );
}
