/* The variadic half of gaspi_printf and gaspi_printf_to. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A negative rank: this process's. */
void unipgas_gaspi_print (int rank, const char *text);

static void
print (int rank, const char *format, va_list args)
{
  char line[1024];
  char *text = line;
  va_list again;
  int length;

  if (format == NULL)
    return;
  va_copy (again, args);
  length = vsnprintf (line, sizeof line, format, args);
  if (length >= 0 && (size_t)length >= sizeof line)
    {
      text = malloc ((size_t)length + 1);
      if (text != NULL)
        vsnprintf (text, (size_t)length + 1, format, again);
    }
  va_end (again);
  if (length >= 0 && text != NULL)
    unipgas_gaspi_print (rank, text);
  if (text != line)
    free (text);
}

__attribute__ ((visibility ("hidden"))) void
unipgas_gaspi_vprintf (const char *format, ...)
{
  va_list args;

  va_start (args, format);
  print (-1, format, args);
  va_end (args);
}

__attribute__ ((visibility ("hidden"))) void
unipgas_gaspi_vprintf_to (unsigned short rank, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  print (rank, format, args);
  va_end (args);
}
