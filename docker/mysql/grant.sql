-- Run once by the image of MySQL, as root, when it initialises its volume. Without it everything works until the first
-- crash: recovery could not see what is prepared. MariaDB shows it to everyone and knows no such privilege.
GRANT XA_RECOVER_ADMIN ON *.* TO 'app'@'%';
